-- Leaky bucket: the moment at which the turn of the last one in line will be over (lib/gcra.lua).
--
-- KEYS   the moment
-- ARGV   take, charge:  1, 2  what the cost takes, as a time: microseconds, numerator
--                       3     the denominator
--        take:          4, 5  how far ahead the moment may lie after it: the capacity, or -1 for a cost above it
--                       6, 7  how far ahead its turn may begin: what those need not wait who go at once, and the patience
--        refund:        as lib/gcra.lua tells
-- seen   microseconds, numerator
--
-- Why two bounds where the token bucket has one: whoever stands in line goes on when its turn begins, so that is what
-- patience is about; and no patience makes the line longer.
return {
  take = function(key, parameters, place)
    local seen, micros, numerator, tail = moment_later(key, parameters, place)
    if not seen then return end
    if
      moment_earlier(tonumber(argv[place + 4]), tonumber(argv[place + 5]), micros - now, numerator)
      or moment_earlier(tonumber(argv[place + 6]), tonumber(argv[place + 7]), seen[1] - now, seen[2])
    then
      return false, seen
    end
    return true, seen, moment_written(parameters, micros, numerator, tail)
  end,

  seldom = line_seldom,
}
