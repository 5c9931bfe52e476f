# Loads the extension for CUDA with fake packages: `fake_cuda.jl`. JLArrays is in the sources of GPUArrays, a dependency of Flux.
const GPU_ARRAYS = Base.locate_package(Base.PkgId(Base.UUID("0c68f7d7-f131-5f86-a1c3-88cf8149b2d7"), "GPUArrays"))
push!(LOAD_PATH, joinpath(dirname(dirname(GPU_ARRAYS)), "lib"))
include("fake_cuda.jl")

# Julia loads an extension with its packages; here both packages are fake modules.
const EXTENSION = read(joinpath(pkgdir(PolyBench), "ext", "PolyBenchCUDAExt.jl"), String)
include_string(Main, replace(EXTENSION, "using CUDA:" => "using Main.CUDA:", "using cuDNN:" => "using Main.cuDNN:"))
