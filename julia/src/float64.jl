"""
    float64_tensors(trainer, batches)

Return the names of arrays of `Float64` in a program's state, `state.model[1].weight`, and in the first batch of a user's program.
Without any, return the first layer of a user's model whose output is of `Float64` although its input is not: a constant of
`Float64` promotes it. A training in `Float64` has none.
"""
function float64_tensors(trainer::ProgramTrainer, batches)
    trainer.loss isa Float64 && return String[]
    (; state) = trainer
    found, seen = String[], Base.IdSet{Any}()
    add_float64!(found, seen, state, "state")
    # The engine's own programs have passed the check in both types, and their batches may come from a pipeline.
    trainer.masks === OWN_BATCHES || return found
    batch = batches[1].images
    add_float64!(found, seen, batch, "batch")
    (isempty(found) && hasproperty(state, :model)) || return found
    promoted = try
        first_promoted(state.model, batch isa Tuple ? first(batch) : batch, "state.model")
    catch error
        @debug "the model takes no batch" error
        nothing
    end
    return promoted isa String ? [promoted] : found
end

is_float64(_) = false
is_float64(::AbstractArray{Float64}) = true

"""
    add_float64!(found, seen, value, name)

Add the names of arrays of `Float64` in a value, which has this name, to `found`. Numbers count as none, since optimizers have
rates in `Float64`, and neither do the states of random generators.
"""
add_float64!(found, _, ::AbstractArray{Float64}, name) = (push!(found, name); nothing)
add_float64!(_, _, ::Union{AbstractArray{<:Number}, AbstractString, Symbol, Number, Type, Module, Task, Random.AbstractRNG}, _) = nothing

function add_float64!(found, seen, chain::Flux.Chain, name)
    foreach(key -> add_float64!(found, seen, chain.layers[key], layer_name(name, key)), keys(chain.layers))
    return nothing
end

add_float64!(found, seen, values::Tuple, name) =
    foreach(index -> add_float64!(found, seen, values[index], "$name[$index]"), eachindex(values))

function add_float64!(found, seen, values::AbstractArray, name)
    values in seen && return nothing
    push!(seen, values)
    for index in eachindex(values)
        isassigned(values, index) && add_float64!(found, seen, values[index], "$name[$index]")
    end
    return nothing
end

function add_float64!(found, seen, pairs::AbstractDict, name)
    for (key, value) in pairs
        add_float64!(found, seen, value, "$name[$(repr(key))]")
    end
    return nothing
end

function add_float64!(found, seen, value, name)
    if ismutable(value)
        value in seen && return nothing
        push!(seen, value)
    end
    for index in 1:nfields(value)
        isdefined(value, index) && add_float64!(found, seen, getfield(value, index), "$name.$(fieldname(typeof(value), index))")
    end
    return nothing
end

layer_name(name, key::Integer) = "$name[$key]"
layer_name(name, key::Symbol) = "$name.$key"

"""
    first_promoted(layer, x, name)

Return the name of the first layer within this one whose output for `x` is of `Float64`, or else the output.
"""
function first_promoted(layer, x, name)
    y = layer(x)
    return is_float64(y) && !is_float64(x) ? "output of $name" : y
end

function first_promoted(chain::Flux.Chain, x, name)
    for key in keys(chain.layers)
        x = first_promoted(chain.layers[key], x, layer_name(name, key))
        x isa String && return x
    end
    return x
end
