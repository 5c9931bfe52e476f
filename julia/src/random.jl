"""
Generator of polybench's random numbers: the raw stream of NumPy's `PCG64(SeedSequence(entropy))`, bit for bit, which NumPy
guarantees to keep. O'Neill, 2014: https://www.pcg-random.org/paper.html (XSL-RR 128/64); NumPy's seeding:
numpy/random/bit_generator.pyx.
"""
mutable struct PCG64
    state::UInt128
    const increment::UInt128
end

const PCG_MULTIPLIER = 0x2360ed051fc65da44385df649fccf645

"""
    PCG64(entropy)

Create the stream for non-negative integers, such as a seed and the number of an epoch.
"""
function PCG64(entropy)
    words = seed_words(entropy)
    join_words(high, low) = UInt128(words[high]) << 64 | words[low]
    stream = PCG64(zero(UInt128), join_words(3, 4) << 1 | 1)
    advance!(stream)
    stream.state += join_words(1, 2)
    advance!(stream)
    return stream
end

advance!(stream::PCG64) = (stream.state = stream.state * PCG_MULTIPLIER + stream.increment)

"""
    next!(stream)

Return the next 64 random bits.
"""
function next!(stream::PCG64)
    state = advance!(stream)
    return bitrotate(((state >> 64) ⊻ state) % UInt64, -Int(state >> 122))
end

"""
    uniform!(stream)

Return a `Float64` in [0, 1) from the top 53 of 64 bits.
"""
uniform!(stream::PCG64) = (next!(stream) >> 11) * 0x1p-53

"""
    seed_words(entropy)

Return the four words with which a `SeedSequence` of these integers initializes PCG64.
"""
function seed_words(entropy)
    pool = mix(mapreduce(to_words, vcat, entropy))
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
    to_words(n)

Split an integer into 32-bit words, the lowest first.
"""
function to_words(n::Integer)
    n >= 0 || throw(ArgumentError("invalid seed $n: expected a number >= 0"))
    words = [n % UInt32]
    while (n >>= 32) > 0
        push!(words, n % UInt32)
    end
    return words
end

"""
    mix(words)

Compute the pool of a `SeedSequence`: four words, each of which depends on every input bit.
"""
function mix(words::Vector{UInt32})
    constant = 0x43b0d7e5
    function hash_word(value)
        value ⊻= constant
        constant *= 0x931e8875
        value *= constant
        return value ⊻ value >> 16
    end
    function combine(x, y)
        value = 0xca01f9dd * x - 0x4973f715 * y
        return value ⊻ value >> 16
    end
    pool = [hash_word(get(words, index, 0x00000000)) for index in 1:4]
    for from in 1:4, to in 1:4
        from == to || (pool[to] = combine(pool[to], hash_word(pool[from])))
    end
    for word in words[5:end], to in 1:4
        pool[to] = combine(pool[to], hash_word(word))
    end
    return pool
end

"""
    crc32(text)

Compute zlib's checksum, which gives each tensor its own stream.
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
