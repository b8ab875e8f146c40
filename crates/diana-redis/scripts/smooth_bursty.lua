-- Smooth bursty: Guava's limiter (lib/guava.lua), in which stored permits are free.
--
-- KEYS, ARGV, seen   see lib/guava.lua
return guava.algorithm(function() return 0 end)
