local limit_conn = require "resty.limit.conn"
local limit_req = require "resty.limit.req"
local limit_traffic = require "resty.limit.traffic"

local of_host, err = limit_req.new("my_req_store", 300, 200)
assert(of_host, err)
local of_client, err = limit_req.new("my_req_store", 200, 100)
assert(of_client, err)
local at_once, err = limit_conn.new("my_conn_store", 1000, 1000, 0.5)
assert(at_once, err)

local client = ngx.var.binary_remote_addr
local keys = {ngx.var.host, client, client}
local states = {}
local delay, err = limit_traffic.combine({of_host, of_client, at_once}, keys, states)
if not delay then
    if err == "rejected" then
        return ngx.exit(503)
    end
    ngx.log(ngx.ERR, "failed to limit traffic: ", err)
    return ngx.exit(500)
end

if at_once:is_committed() then
    local ctx = ngx.ctx
    ctx.limit_conn = at_once
    ctx.limit_conn_key = keys[3]
end

print("sleeping ", delay, " sec, states: ", table.concat(states, ", "))
if delay >= 0.001 then
    ngx.sleep(delay)
end
