local locks = require "resty.lock"

local function acquire()
    local lock = locks:new("locks")
    lock:lock("counter")
    local counts = ngx.shared.limit_counter
    local key = "ip:" .. os.time()
    local limit = 5
    local current = counts:get(key)
    if current ~= nil and current + 1 > limit then
        lock:unlock()
        return 0
    end
    if current == nil then
        counts:set(key, 1, 1)
    else
        counts:incr(key, 1)
    end
    lock:unlock()
    return 1
end

if acquire() == 0 then
    ngx.exit(503)
end
