"""
Finds by experiment which value of a window receives the gradient of max-pooling. NNlib on the CPU compares with `≈`, so this is the
first value that is approximately the maximum. If NNlib changes that, the experiment detects it.
"""
function max_pool_within end

"""
    max_pool_within(T)

Return the largest relative difference to the maximum at which the first value of a window still receives the gradient on the CPU; 0
if only the maximum does.
"""
function max_pool_within(::Type{T}) where {T <: AbstractFloat}
    within = sqrt(eps(T))  # default tolerance of isapprox
    return prefers_first(one(T) - within / 2) && !prefers_first(one(T) - 2 * within) ? Float64(within) : 0.0
end

max_pool_within(dtype::String) = max_pool_within(ELEMENT_TYPES[dtype])

"""
    prefers_first(below)

True if the first value of a window receives the gradient although it is smaller than the maximum of 1.
"""
function prefers_first(below::T) where {T}
    x = reshape(T[below, 1, 0, 0], 2, 2, 1, 1)
    y, back = Zygote.pullback(a -> NNlib.maxpool(a, (2, 2)), x)
    return !iszero(first(only(back(one.(y)))))
end
