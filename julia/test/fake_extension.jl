# A training in two modes, of which one needs a package that a fake module of the same name in Main replaces.

"""Load an extension without its package."""
function include_extension(package, replacements...)
    source = read(joinpath(pkgdir(PolyBench), "ext", "PolyBench$(package)Ext.jl"), String)
    return include_string(Main, replace(source, "using $package:" => "using Main.$package:", replacements...))
end

"""Train lenet for three steps in this mode, and return the run and its losses."""
function train_lenet(way)
    network = PolyBench.model(:lenet)
    images = PolyBench.synthetic(network, 0; count = 16)
    batches = PolyBench.first_batches(network, images, reshape(0:15, 4, 4), 3)
    run = PolyBench.network_run(network, PolyBench.initial_weights(network, 0), way, batches, PolyBench.CPU())
    PolyBench.reset!(run)
    return run, map(step -> (PolyBench.run_steps!(run, step, 1); PolyBench.last_loss(run)), 0:2)
end

isdefined(Main, :make_trainer) || include("small_trainer.jl")

"""Return the loss, the gradients and the logits of the small program, whose mode `way` only computes the gradients."""
function snapshot(way...)
    trainer = make_trainer(Program, way...)
    loss, gradients, _ = PolyBench.loss_and_gradients(trainer, data(trainer), 0)
    return loss, gradients, PolyBench.inference_logits(trainer, INPUTS[:, :, 1])
end
