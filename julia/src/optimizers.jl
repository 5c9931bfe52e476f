"""
Flux's own optimizers with the constants of the canonical formulas (`polybench/networks/optimizers.py`).

`Descent`, `Nesterov`, `RMSProp` and `Adam` compute these formulas; they add epsilon to the root, `Adam` to that of
the bias-corrected v. `WeightDecay`, first in a chain, adds to the gradient. `Momentum` and `Nesterov` include the rate
in the velocity, which is equivalent while the rate is constant. `Adam` stores 0.9^t and 0.999^t in the weights'
type: in Float32, the length of a step has an error of up to 7e-6 (Optimisers 0.4, src/rules.jl). `AdamW` multiplies the decay by
the rate (`couple = true`, its default); `decay_matrices_only!` is by hand.
"""
function rule end

const ADAM_BETAS = (0.9, 0.999)

"""
    rule(name; learning_rate, momentum = 0.9, weight_decay = 0.0, betas = (0.9, 0.999))

Return the rule of the optimizer with this name in polybench.
"""
function rule(
        name::String; learning_rate::Real, momentum::Real = 0.9, weight_decay::Real = 0.0, betas::NTuple{2, Real} = ADAM_BETAS,
    )
    rate, betas = Float64(learning_rate), Float64.(betas)
    name == "adamw" && return Flux.AdamW(rate, betas, Float64(weight_decay), 1.0e-8)
    made = name == "adam" ? Flux.Adam(rate, betas, 1.0e-8) : rule(Val(Symbol(name)), rate, Float64(momentum))
    return iszero(weight_decay) ? made : OptimiserChain(Flux.WeightDecay(Float64(weight_decay)), made)
end

rule(::Val{:sgd}, rate, _) = Flux.Descent(rate)
rule(::Val{:momentum}, rate, momentum) = Flux.Momentum(rate, momentum)
rule(::Val{:nesterov}, rate, momentum) = Flux.Nesterov(rate, momentum)
rule(::Val{:rmsprop}, rate, _) = Flux.RMSProp(rate, 0.9, 1.0e-7)
rule(::Val{T}, _, _) where {T} = throw(ArgumentError("PolyBench has no optimizer \"$T\""))

"""
    optimizer_settings(rule)

Return the name and the settings of a rule in polybench, as in a network file; epsilon is not part of them. Throws an
`ArgumentError` for rules of types that `rule` does not return.
"""
optimizer_settings(rule::Flux.Descent) = Dict{String, Any}("name" => "sgd", "learning_rate" => rule.eta)
optimizer_settings(rule::Flux.Momentum) = Dict{String, Any}("name" => "momentum", "learning_rate" => rule.eta, "momentum" => rule.rho)
optimizer_settings(rule::Flux.Nesterov) = Dict{String, Any}("name" => "nesterov", "learning_rate" => rule.eta, "momentum" => rule.rho)
optimizer_settings(rule::Flux.RMSProp) = Dict{String, Any}("name" => "rmsprop", "learning_rate" => rule.eta)
optimizer_settings(rule::Flux.Adam) = Dict{String, Any}("name" => "adam", "learning_rate" => rule.eta, "betas" => rule.beta)
optimizer_settings(rule::Flux.AdamW) =
    Dict{String, Any}("name" => "adamw", "learning_rate" => rule.eta, "betas" => rule.beta, "weight_decay" => rule.lambda)
optimizer_settings(rule::OptimiserChain{<:Tuple{Flux.WeightDecay, Union{Flux.Descent, Flux.Momentum, Flux.Nesterov, Flux.RMSProp, Flux.Adam}}}) =
    merge!(optimizer_settings(rule.opts[2]), Dict("weight_decay" => rule.opts[1].lambda))
optimizer_settings(rule) = throw(
    ArgumentError(
        "a study has no name for the optimizer $(nameof(typeof(rule))): " *
            "use Descent, Momentum, Nesterov, RMSProp, Adam or AdamW, with a WeightDecay before it or without one",
    )
)

"""
    decay_matrices_only!(state)

Turn off the decay of AdamW for biases, for the weights of norms, and for class tokens, in a state of `Flux.setup`. Returns the state.
"""
function decay_matrices_only!(state)
    if state isa Leaf{<:Flux.AdamW}
        ndims(first(state.state)) > 1 || Flux.adjust!(state; lambda = 0.0)
    elseif state isa Union{Tuple, NamedTuple}
        foreach(decay_matrices_only!, state)
    end
    return state
end
