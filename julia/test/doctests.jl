# Runs the `jldoctest` blocks of the package's docstrings as Documenter does: prompts, then the value as the REPL shows it.
using PolyBench, Test

"""
    doctests(package)

Return (name, block) for each `jldoctest` block in the docstrings of a module.
"""
doctests(package) = sort!(
    [
        (string(binding.var), String(block[1])) for (binding, docs) in Base.Docs.meta(package) for doc in values(docs.docs)
            for block in eachmatch(r"```jldoctest\n(.*?)\n```"s, join(doc.text))
    ]
)

"""
    check_doctest(block)

Test the output of each prompt in a new module; a line of code that starts with seven spaces continues the one before.
"""
function check_doctest(block)
    session = Module(:Doctest)
    for entry in split(block, r"^julia> "m; keepempty = false)
        lines = split(chomp(entry), '\n')
        last_of_code = something(findfirst(!startswith("       "), lines[2:end]), length(lines))
        code = join(chopprefix.(lines[1:last_of_code], "       "), '\n')
        expected = rstrip(join(lines[(last_of_code + 1):end], '\n'))
        @testset "$code" begin
            @test output(session, code) == expected
        end
    end
    return nothing
end

function output(session, code)
    value = try
        include_string(session, code)
    catch failure
        return "ERROR: " * sprint(showerror, failure isa LoadError ? failure.error : failure)
    end
    return endswith(code, ';') || value === nothing ? "" :
        rstrip(Base.invokelatest(repr, MIME("text/plain"), value; context = :limit => true))
end

@testset "doctests" begin
    found = doctests(PolyBench)
    # A docstring with an example for each function that users call.
    names = (:bench, :compare, :gc_fraction, :judge, :layers, :mean, :median, :model_names, :ratio, :read_study, :rows, :std, :write_study)
    @test issubset(string.(names), first.(found))
    for (name, block) in found
        @testset "$name" check_doctest(block)
    end
    @test output(Module(), "1 +\n1") == "2" && output(Module(), "error(\"no\")") == "ERROR: no" && output(Module(), "1;") == ""
end
