-- Leaky bucket: the time at which the last queued request's turn will be over (lib/gcra.lua).
--
-- KEYS   the time
-- ARGV   take, charge:  1, 2  the cost as a duration: microseconds, numerator
--                       3     the denominator
--        take:          4, 5  how far ahead the time may lie after it: the capacity, or -1 for a cost above it
--                       6, 7  how far ahead its turn may begin: the undelayed part of the queue, and the maximum wait
--        refund:        see lib/gcra.lua
-- seen   microseconds, numerator
--
-- Why two bounds where the token bucket has one: a queued request proceeds when its turn begins, so the maximum wait
-- applies to that; and no maximum wait makes the queue longer.
return {
  take = function(key, parameters, base)
    local seen, micros, numerator, tail = time_later(key, parameters, base)
    if not seen then return end
    if
      time_earlier(tonumber(argv[base + 4]), tonumber(argv[base + 5]), micros - now, numerator)
      or time_earlier(tonumber(argv[base + 6]), tonumber(argv[base + 7]), seen[1] - now, seen[2])
    then
      return false, seen
    end
    return true, seen, time_text(parameters, micros, numerator, tail)
  end,

  rare = queue_rare,
}
