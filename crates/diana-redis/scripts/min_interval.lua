-- Minimum interval: the next free moment (lib/gcra.lua). The cost plays no part: a grant is a grant.
--
-- KEYS   the moment
-- ARGV   take, charge:  1, 2  the interval: microseconds, numerator
--                       3     the denominator
--        take:          4     how far ahead the moment may lie before it: the patience, in microseconds
--        refund:        as lib/gcra.lua tells, where the segment is the interval before the next free moment. Only the last
--                       one is given back: behind any other somebody keeps a time that was reckoned from it.
-- seen   microseconds, numerator
return {
  take = function(key, parameters, place)
    local seen, micros, numerator, tail = moment_later(key, parameters, place)
    if not seen then return end
    if moment_earlier(tonumber(argv[place + 4]), 0, seen[1] - now, seen[2]) then return false, seen end
    return true, seen, moment_written(parameters, micros, numerator, tail)
  end,

  seldom = line_seldom,
}
