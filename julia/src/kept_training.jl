"""
What a training depends on besides its batches, out of a trainer and back: for the same training in another process.
"""
struct KeptTraining{T <: AbstractFloat}
    "Weights, running statistics and the optimizer's state, in the order in which `each_number` comes to them."
    numbers::Vector{T}
    "The learning rate that velocities have as a factor."
    rate::Float64
    "Of the host's generator, which dropout on the CPU draws its masks from; that of a GPU starts from them."
    generator::Vector{UInt64}
end

"""
    kept_training(trainer)

Copies of all that the next step depends on.
"""
function kept_training(trainer::Trainer)
    T = typeof(trainer.loss)
    numbers = T[]
    each_number(trainer) do x
        append!(numbers, x isa Number ? x : vec(Array(x)))
        return x
    end
    words = copy(Random.default_rng())
    return KeptTraining{T}(numbers, trainer.rate, [words.s0, words.s1, words.s2, words.s3])
end

"""
    go_on_from!(trainer, kept)

Put them back, whatever the trainer has done meanwhile.
"""
function go_on_from!(trainer::Trainer, kept::KeptTraining)
    place = 0
    each_number(trainer) do x
        first, place = place + 1, place + length(x)
        x isa Number && return kept.numbers[first]
        return copyto!(x, reshape(kept.numbers[first:place], size(x)))
    end
    Flux.adjust!(trainer.state, kept.rate)
    trainer.rate = kept.rate
    go_on_drawing!(trainer.device, kept.generator)
    return nothing
end

go_on_drawing!(::CPU, words) = (copy!(Random.default_rng(), Random.Xoshiro(words...)); nothing)
go_on_drawing!(device::Device, words) = seed!(device, Int(first(words) >> 1))

"""
    each_number(f, trainer)

Call `f` with each array of weights and statistics, then with each array and number of the optimizer's state; numbers become what it returns.
"""
function each_number(f, trainer::Trainer)
    foreach(((_, array),) -> f(array), tensors(trainer.network))
    changed!(f, trainer.state)
    return nothing
end

changed!(f, leaf::Leaf) = (leaf.state = changed(f, leaf.state); nothing)
changed!(f, branch::Union{Tuple, NamedTuple}) = foreach(one -> changed!(f, one), branch)
changed!(_, ::Any) = nothing

changed(f, x::Union{AbstractArray, AbstractFloat}) = f(x)
changed(f, parts::Tuple) = map(part -> changed(f, part), parts)
changed(_, x) = x
