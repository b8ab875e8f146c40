-- Smooth bursty: Guava's limiter (lib/guava.lua), in which stored permits cost nothing.
--
-- KEYS, ARGV, seen   as lib/guava.lua tells
return guava.algorithm(function() return 0 end)
