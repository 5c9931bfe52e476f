"""
Which value of a window the gradient of max-pooling goes to, found by an experiment: NNlib on the CPU takes the first that is
approximately the maximum, since it compares with `≈`. The day it does not, nothing has to be changed here.
"""
function max_pool_within end

"""
    max_pool_within(T)

How far below the maximum, relative to it, the first value of a window may be that gets the gradient; 0 where only
the maximum does. On the CPU.
"""
function max_pool_within(::Type{T}) where {T <: AbstractFloat}
    within = sqrt(eps(T))  # isapprox without tolerances
    return takes_the_first(one(T) - within / 2) && !takes_the_first(one(T) - 2 * within) ? Float64(within) : 0.0
end

max_pool_within(dtype::String) = max_pool_within(ELEMENT_TYPES[dtype])

"""
    takes_the_first(below)

Whether the gradient of a window whose maximum is 1 goes to a first value that is smaller.
"""
function takes_the_first(below::T) where {T}
    x = reshape(T[below, 1, 0, 0], 2, 2, 1, 1)
    y, back = Zygote.pullback(a -> NNlib.maxpool(a, (2, 2)), x)
    return !iszero(first(only(back(one.(y)))))
end
