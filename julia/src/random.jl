"""
The random numbers of polybench: the raw stream of NumPy's `PCG64(SeedSequence(entropy))`, bit for bit, which NumPy
promises not to change. O'Neill, 2014: https://www.pcg-random.org/paper.html (XSL-RR 128/64); the seeding is NumPy's own
(numpy/random/bit_generator.pyx).
"""
mutable struct PCG64
    state::UInt128
    const increment::UInt128
end

const PCG_MULTIPLIER = 0x2360ed051fc65da44385df649fccf645

"""
    PCG64(entropy)

The stream of non-negative integers, such as a seed and the number of an epoch.
"""
function PCG64(entropy)
    words = seed_words(entropy)
    joined(high, low) = UInt128(words[high]) << 64 | words[low]
    stream = PCG64(zero(UInt128), joined(3, 4) << 1 | 1)
    advance!(stream)
    stream.state += joined(1, 2)
    advance!(stream)
    return stream
end

advance!(stream::PCG64) = (stream.state = stream.state * PCG_MULTIPLIER + stream.increment)

"""
    next!(stream)

The next 64 random bits.
"""
function next!(stream::PCG64)
    state = advance!(stream)
    return bitrotate(((state >> 64) ⊻ state) % UInt64, -Int(state >> 122))
end

"""
    uniform!(stream)

A `Float64` in [0, 1): the top 53 of 64 bits.
"""
uniform!(stream::PCG64) = (next!(stream) >> 11) * 0x1p-53

"""
    seed_words(entropy)

The four words with which a `SeedSequence` of these integers starts a PCG64.
"""
function seed_words(entropy)
    pool = mixed(mapreduce(halves, vcat, entropy))
    constant = 0x8b51f9dd
    state = map(0:7) do index
        value = pool[index % 4 + 1] ⊻ constant
        constant *= 0x58f38ded
        value *= constant
        value ⊻ value >> 16
    end
    return [UInt64(state[2i]) << 32 | state[2i - 1] for i in 1:4]
end

"""
    halves(n)

The 32-bit words of an integer, the lowest first.
"""
function halves(n::Integer)
    n >= 0 || throw(ArgumentError("a seed is not negative, and this one is $n"))
    words = [n % UInt32]
    while (n >>= 32) > 0
        push!(words, n % UInt32)
    end
    return words
end

"""
    mixed(words)

The pool of a `SeedSequence`: four words, each of which depends on every bit.
"""
function mixed(words::Vector{UInt32})
    constant = 0x43b0d7e5
    function hashed(value)
        value ⊻= constant
        constant *= 0x931e8875
        value *= constant
        return value ⊻ value >> 16
    end
    function joined(x, y)
        value = 0xca01f9dd * x - 0x4973f715 * y
        return value ⊻ value >> 16
    end
    pool = [hashed(get(words, index, 0x00000000)) for index in 1:4]
    for from in 1:4, to in 1:4
        from == to || (pool[to] = joined(pool[to], hashed(pool[from])))
    end
    for word in words[5:end], to in 1:4
        pool[to] = joined(pool[to], hashed(word))
    end
    return pool
end

"""
    crc32(text)

zlib's checksum, by which each tensor has a stream of its own.
"""
function crc32(text::AbstractString)
    value = 0xffffffff
    for byte in codeunits(text)
        value ⊻= byte
        for _ in 1:8
            value = value & 1 == 1 ? value >> 1 ⊻ 0xedb88320 : value >> 1
        end
    end
    return ~value
end
