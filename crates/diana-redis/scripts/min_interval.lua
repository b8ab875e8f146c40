-- Minimum interval: the next free time (lib/gcra.lua). The cost is ignored: each grant takes one interval.
--
-- KEYS   the time
-- ARGV   take, charge:  1, 2  the interval: microseconds, numerator
--                       3     the denominator
--        take:          4     how far ahead the time may lie before it: the maximum wait, in microseconds
--        refund:        see lib/gcra.lua, where the segment is the interval before the next free time. Only the last
--                       one is refunded: after any other, a later grant has a time that was computed from it.
-- seen   microseconds, numerator
return {
  take = function(key, parameters, base)
    local seen, micros, numerator, tail = time_later(key, parameters, base)
    if not seen then return end
    if time_earlier(tonumber(argv[base + 4]), 0, seen[1] - now, seen[2]) then return false, seen end
    return true, seen, time_text(parameters, micros, numerator, tail)
  end,

  rare = queue_rare,
}
