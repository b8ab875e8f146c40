-- Writes an algorithm's value; see decide.lua.
local function write(key, value, fresh_at)
  if type(value) == 'function' then
    value(key)
  elseif value then
    if fresh_at == math.huge then
      redis.call('SET', key, value)
      return
    elseif fresh_at > now then
      if caller_time then
        redis.call('SET', key, value, 'PX', '3600000')
      else
        redis.call('SET', key, value, 'PXAT', format('%.0f', ceil(fresh_at / 1000)))
      end
      return
    end
    redis.call('DEL', key)
  elseif value == false then
    redis.call('DEL', key)
  end
end
