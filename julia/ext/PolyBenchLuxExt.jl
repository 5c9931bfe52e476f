"""
Programs of Lux: the gradients and logits that the parity check compares; and the recorder of trainings in Lux.
"""
module PolyBenchLuxExt

using Lux: AutoZygote, Lux, Training
using PolyBench: PolyBench

function PolyBench.loss_and_gradients(::PolyBench.StepMode, program::Module, train_state::Training.TrainState, inputs, labels)
    gradients, loss, _, _ = Training.compute_gradients(AutoZygote(), program.compute_loss, (inputs, labels), train_state)
    return loss, (; parameters = PolyBench.replace_arrays(train_state.parameters, gradients), train_state.states)
end

PolyBench.test_logits(::PolyBench.ProgramTrainer, train_state::Training.TrainState, x) =
    first(train_state.model(x, train_state.parameters, Lux.testmode(train_state.states)))

"""
    PolyBench.record(train, file, train_state; steps)
    PolyBench.step!(trace, train_state; loss, gradient, batch)

Record a training with Lux. Each step returns another `TrainState`, which `step!` gets:

    PolyBench.record("lux.trace", train_state) do trace
        for batch in batches
            gradient, loss, _, train_state = Training.single_train_step!(AutoZygote(), loss_function, batch, train_state)
            PolyBench.step!(trace, train_state; loss, batch, gradient)
        end
    end
"""
PolyBench.record(train, file::AbstractString, train_state::Training.TrainState; options...) =
    PolyBench.record(train, file, train_state, train_state.optimizer_state; options...)

function PolyBench.step!(trace::PolyBench.Recorder, train_state::Training.TrainState; options...)
    trace.model, trace.state = train_state, train_state.optimizer_state
    return PolyBench.step!(trace; options...)
end

PolyBench.recorded_framework(::Training.TrainState) = "lux", pkgversion(Lux)
PolyBench.weights_by_name(train_state::Training.TrainState) = PolyBench.named_arrays(train_state.parameters)
PolyBench.states(train_state::Training.TrainState) = train_state.states

end
