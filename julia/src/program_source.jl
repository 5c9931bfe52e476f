"""
The packages that a program loads, and the files that it includes with their texts.
"""
struct Declarations
    packages::Vector{String}
    files::Vector{Pair{String, String}}
end

"""
    declarations(path, text)

Return the packages and files of a program if the top levels of all its files only declare something: imports, functions, types,
modules, and constants of numbers, text, types and tuples. Such a program is the same whether it is included or loaded as a
package, whose top level runs only when it is compiled. Return nothing for any other program.
"""
function declarations(path::AbstractString, text::AbstractString)
    found = Declarations([], [])
    return add_file!(found, path, text) ? found : nothing
end

add_file!(found, path, text) = add_declaration!(found, path, Meta.parseall(text; filename = path))

"""
    add_declaration!(found, path, expression)

Add what an expression at the top level of the file loads; return false if it may do more than declare.
"""
add_declaration!(_, _, ::Union{LineNumberNode, String, Nothing}) = true
add_declaration!(_, _, _) = false

function add_declaration!(found, path, expression::Expr)
    (; head, args) = expression
    all_declare(expressions) = all(inner -> add_declaration!(found, path, inner), expressions)
    head in (:toplevel, :block) && return all_declare(args)
    head in (:function, :macro, :struct, :abstract, :primitive, :export) && return true
    head in (:using, :import) && return add_imports!(found, expression)
    head === :module && return add_declaration!(found, path, args[3])
    head === :(=) && return is_function(args[1])
    head === :const && return is_constant(only(args))
    head === :macrocall && return macro_name(args[1]) in ABOUT_TYPES ||
        (macro_name(args[1]) in DECLARING && all_declare(filter(inner -> inner isa Expr, args[3:end])))
    head === :if && return is_main_guard(args[1])  # nothing runs the file as a script
    return head === :call && args[1] === :include && length(args) == 2 && args[2] isa String && add_include!(found, path, args[2])
end

function add_imports!(found, expression)
    for one in expression.args
        one.head === :(:) && (one = one.args[1])  # `using A: b`
        one.head === :as && (one = one.args[1])
        name = one.args[1]
        name === :. || push!(found.packages, String(name))
    end
    return true
end

function add_include!(found, path, name)
    file = joinpath(dirname(path), name)
    isfile(file) || return false
    text = read(file, String)
    any(==(file) ∘ first, found.files) && return true
    push!(found.files, file => text)
    return add_file!(found, file, text)
end

is_function(_) = false
is_function(left::Expr) = left.head === :call || (left.head in (:where, :(::)) && is_function(left.args[1]))

"Return whether an assignment's value is immutable, so that no step leaves something in it, and the same in each process."
is_constant(_) = false
is_constant(assignment::Expr) = assignment.head === :(=) && is_plain(assignment.args[2])

const PLAIN_CALLS = (:+, :-, :*, :/, :^, ://, :÷, :(=>), :(:), :Float32, :Float64, :Int, :Int32, :Int64, :UInt8, :joinpath)
const PLAIN_HEADS = (:tuple, :parameters, :kw, :(=), :curly, :., :(->))

is_plain(_) = true
function is_plain(value::Expr)
    value.head === :(->) && return true
    value.head === :call && return value.args[1] in PLAIN_CALLS && all(is_plain, value.args[2:end])
    value.head === :macrocall && return value.args[1] === Symbol("@__DIR__")
    return value.head in PLAIN_HEADS && all(is_plain, value.args)
end

const ABOUT_TYPES = ("@layer", "@functor")
"Macros before a declaration."
const DECLARING = ("@doc", "@kwdef", "@inline", "@noinline", "@generated", "@concrete")

macro_name(name::Symbol) = String(name)
macro_name(name::GlobalRef) = String(name.name)
macro_name(name::Expr) = macro_name(name.args[2].value)  # `Flux.@layer`

is_main_guard(condition) = occursin("PROGRAM_FILE", string(condition))

"""
    uuids(names)

Return the packages of these names that the project or Julia's standard library has, with their UUIDs.
"""
function uuids(names)
    found = [name => Base.identify_package(name) for name in unique(names)]
    return [name => package.uuid for (name, package) in found if package !== nothing && package.uuid !== nothing]
end
