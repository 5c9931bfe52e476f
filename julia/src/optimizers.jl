"""
Flux's own optimizers with the constants of the canonical formulas (`polybench/networks/optimizers.py`).

`Descent`, `Nesterov`, `RMSProp` and `Adam` compute these formulas; they add epsilon to the root, `Adam` to that of
the bias-corrected v. `WeightDecay`, first in a chain, adds to the gradient. `Momentum` and `Nesterov` include the rate
in the velocity, which is equivalent while the rate is constant. `Adam` stores 0.9^t and 0.999^t in the weights'
type: in Float32, the length of a step has an error of up to 7e-6 (Optimisers 0.4, src/rules.jl).
"""
function rule end

"""
    rule(name; learning_rate, momentum = 0.9, weight_decay = 0.0)

Return the rule of the optimizer with this name in polybench.
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

Change the learning rate in a state of `Flux.setup`. Velocities include the rate as a factor, so they are
rescaled: in the canonical formula the new rate also applies to earlier gradients.
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
