-- Token bucket: the moment at which the bucket will be full again (lib/moment.lua).
--
-- KEYS   the moment
-- ARGV   take, charge:  1, 2  what the cost takes, as a time: microseconds, numerator
--                       3     the denominator
--        take:          4, 5  how far ahead the moment may lie after it: the capacity and the patience, or -1 for a cost
--                             above the capacity
--        refund:        as moment.refund tells
-- seen   microseconds, numerator
return {
  take = function(key, parameters, place)
    local seen, micros, numerator, since = moment.later(key, parameters, place)
    if not seen then return end
    if moment.earlier(tonumber(argv[place + 4]), tonumber(argv[place + 5]), micros - now, numerator) then
      return false, seen
    end
    return moment.moved(parameters, seen, micros, numerator, since)
  end,

  charge = moment.charge,

  refund = moment.refund,
}
