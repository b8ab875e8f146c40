-- Token bucket: the moment at which the bucket will be full again (lib/moment.lua).
--
-- KEYS   the moment
-- ARGV   take, charge:  1, 2  what the cost takes, as a time: microseconds, numerator
--                       3, 4  how far ahead the moment may lie after it: the capacity and the patience, or -1 for a cost
--                             above the capacity; charge: unused
--                       5     the denominator
--        refund:        as moment.refund tells
-- seen   microseconds, numerator
local function later(key, parameters, place)
  local micros, numerator, since = moment.read(key, parameters, place)
  if not micros then return end
  local seen = { micros, numerator }
  if micros < now then micros, numerator = now, 0 end
  micros, numerator =
    moment.add(micros, numerator, tonumber(argv[place + 1]), tonumber(argv[place + 2]), tonumber(argv[place + 5]))
  return seen, micros, numerator, since
end

return {
  take = function(key, parameters, place)
    local seen, micros, numerator, since = later(key, parameters, place)
    if not seen then return end
    if moment.earlier(tonumber(argv[place + 3]), tonumber(argv[place + 4]), micros - now, numerator) then
      return false, seen
    end
    return true, seen, moment.text(parameters, micros, numerator, since), micros + (numerator > 0 and 1 or 0)
  end,

  charge = function(key, parameters, place)
    local seen, micros, numerator, since = later(key, parameters, place)
    if not seen then return end
    return true, seen, moment.text(parameters, micros, numerator, since), micros + (numerator > 0 and 1 or 0)
  end,

  refund = moment.refund,
}
