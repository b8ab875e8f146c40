-- Smooth warming up: Guava's limiter (lib/guava.lua), in which a full store means cold: stored permits above the
-- threshold cost more than fresh ones, the more the fuller the store is.
--
-- KEYS, seen   see lib/guava.lua
-- ARGV         likewise, and for take and charge  8  the threshold
--                                                 9  the slope: additional microseconds for each permit above it
return guava.algorithm(function(stored, taken, interval, base)
  local above = stored - tonumber(argv[base + 8])
  if not (above > 0) then return guava.whole_micros(interval * taken) end
  local slope = tonumber(argv[base + 9])
  local steep = math.min(above, taken)
  local length = (interval + above * slope) + (interval + (above - steep) * slope)
  return guava.whole_micros(steep * length / 2) + guava.whole_micros(interval * (taken - steep))
end)
