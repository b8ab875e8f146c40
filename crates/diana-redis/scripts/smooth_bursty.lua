-- Smooth bursty: Guava's limiter (lib/smooth.lua), in which stored permits cost nothing.
--
-- KEYS, ARGV, seen   as lib/smooth.lua tells
return smooth.algorithm(function() return 0 end)
