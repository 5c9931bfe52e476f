"""
Flux's own optimizers with the constants of the canonical formulas (`polybench/core/optimizers.py`).

`Descent`, `Nesterov`, `RMSProp` and `Adam` compute them as they are; epsilon is added to the root, in `Adam` to that of
the bias-corrected v. `WeightDecay`, first in a chain, adds to the gradient. `Momentum` and `Nesterov` keep the rate
inside the velocity, which changes nothing as long as the rate stays. `Adam` keeps 0.9^t and 0.999^t in the weights'
own type: in Float32 a step is up to 7e-6 too long or short (Optimisers 0.4, src/rules.jl).
"""
function rule end

"""
    rule(name; learning_rate, momentum = 0.9, weight_decay = 0.0)

The rule of the optimizer that polybench calls `name`.
"""
function rule(name::String; learning_rate::Real, momentum::Real = 0.9, weight_decay::Real = 0.0)
    made = rule(Val(Symbol(name)), Float64(learning_rate), Float64(momentum))
    return iszero(weight_decay) ? made : OptimiserChain(Flux.WeightDecay(Float64(weight_decay)), made)
end

rule(::Val{:sgd}, rate, _) = Flux.Descent(rate)
rule(::Val{:momentum}, rate, momentum) = Flux.Momentum(rate, momentum)
rule(::Val{:nesterov}, rate, momentum) = Flux.Nesterov(rate, momentum)
rule(::Val{:rmsprop}, rate, _) = Flux.RMSProp(rate, 0.9, 1.0e-7)
rule(::Val{:adam}, rate, _) = Flux.Adam(rate, (0.9, 0.999), 1.0e-8)
rule(::Val{T}, _, _) where {T} = throw(ArgumentError("PolyBench has no optimizer \"$T\""))

"""
    change_rate!(state, old, new)

Another learning rate for the optimizer state that `Flux.setup` made. A velocity, which has the rate as a factor, is
rescaled: in the canonical formula the steps before the change count with the new rate as well.
"""
function change_rate!(state, old::Real, new::Real)
    Flux.adjust!(state, new)
    rescale!(state, new / old)
    return nothing
end

rescale!(tree, factor) = foreach(branch -> rescale!(branch, factor), tree)
rescale!(leaf::Leaf, factor) = rescale!(leaf.rule, leaf.state, factor)
rescale!(::Union{Flux.Momentum, Flux.Nesterov}, velocity, factor) = velocity .*= factor
rescale!(chain::OptimiserChain, states, factor) =
    foreach((rule, state) -> rescale!(rule, state, factor), chain.opts, states)
rescale!(::AbstractRule, _, _) = nothing
