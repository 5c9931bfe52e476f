"""
The state of a training, except batches, for continuing it in another process.
"""
struct TrainingState{T <: AbstractFloat}
    "Weights, running statistics and optimizer state, in the order of `map_numbers!`."
    numbers::Vector{T}
    "The learning rate, which is a factor of velocities."
    rate::Float64
    "State of the host's random number generator, which draws dropout masks on the CPU and seeds the generator of a GPU."
    generator::Vector{UInt64}
end

"""
    training_state(trainer)

Copy everything that the next step depends on.
"""
function training_state(trainer::ProgramTrainer)
    T = typeof(trainer.loss)
    numbers = T[]
    map_numbers!(trainer) do x
        append!(numbers, x isa Number ? x : vec(Array(x)))
        return x
    end
    words = copy(Random.default_rng())
    return TrainingState{T}(numbers, rate(trainer), [words.s0, words.s1, words.s2, words.s3])
end

"""
    restore!(trainer, saved)

Restore a saved state.
"""
function restore!(trainer::ProgramTrainer, saved::TrainingState)
    last = 0
    map_numbers!(trainer) do x
        first, last = last + 1, last + length(x)
        x isa Number && return saved.numbers[first]
        x .= to_device(trainer.device, reshape(saved.numbers[first:last], size(x)))
        return x
    end
    restore_rate!(trainer, saved.rate)
    restore_rng!(trainer.device, saved.generator)
    return nothing
end

restore_rng!(::CPU, words) = (copy!(Random.default_rng(), Random.Xoshiro(words...)); nothing)
restore_rng!(device::Device, words) = seed!(device, Int(first(words) >> 1))

"""
    map_numbers!(f, trainer)

Call `f` with each array of weights and statistics, then with each array and number of the optimizer state. Its results replace the
numbers.
"""
function map_numbers!(f, trainer::ProgramTrainer)
    foreach(f, arrays(trainer))
    map_leaves!(f, optimizer(trainer))
    return nothing
end

map_leaves!(f, leaf::Leaf) = (leaf.state = map_leaf(f, leaf.state); nothing)
map_leaves!(f, branch::Union{Tuple, NamedTuple}) = foreach(child -> map_leaves!(f, child), branch)
map_leaves!(_, ::Any) = nothing

map_leaf(f, x::Union{AbstractArray, AbstractFloat}) = f(x)
map_leaf(f, parts::Tuple) = map(part -> map_leaf(f, part), parts)
map_leaf(_, x) = x
