#!lua name=glidemq

-- Two glide-mq functions for a Valkey that is compared with Jobyard. They write what the wire protocol
-- requires for a plain job, and read nothing more. Ordering keys, groups, flows and time limits are not
-- implemented: a load that sent them would measure something else here.

local BAND = 4398046511104 -- 2^42: the distance between two priorities in `scheduled`

-- Returns `glide:{queue}:` from a key that ends with `ending`.
local function prefix_of(key, ending)
  return string.sub(key, 1, #key - #ending)
end

local function tell(events, ...)
  server.call('XADD', events, 'MAXLEN', '~', '1000', '*', ...)
end

server.register_function('glidemq_version', function()
  return '93'
end)

server.register_function('glidemq_addJob', function(keys, args)
  local id = args[17]
  if id == '' then
    id = tostring(server.call('INCR', keys[1]))
  end
  local job = prefix_of(keys[1], 'id') .. 'job:' .. id
  if args[17] ~= '' and server.call('EXISTS', job) == 1 then
    return 'duplicate'
  end
  local delay, priority = tonumber(args[5]), tonumber(args[6])
  local state = delay > 0 and 'delayed' or priority > 0 and 'prioritized' or 'waiting'
  server.call('HSET', job, 'id', id, 'name', args[1], 'data', args[2], 'opts', args[3],
    'timestamp', args[4], 'attemptsMade', '0', 'delay', args[5], 'priority', args[6],
    'maxAttempts', args[8], 'state', state)
  if state == 'waiting' then
    server.call('XADD', keys[2], '*', 'jobId', id)
  else
    local due = delay > 0 and tonumber(args[4]) + delay or 0
    server.call('ZADD', keys[3], priority * BAND + due, id)
  end
  tell(keys[4], 'event', 'added', 'jobId', id, 'name', args[1])
  return id
end)

server.register_function('glidemq_completeAndFetchNext', function(keys, args)
  local stream, completed, events, job, metrics = unpack(keys)
  local id, entry, value, now, group, consumer, removal = unpack(args)
  server.call('XACK', stream, group, entry)
  server.call('XDEL', stream, entry)
  if removal == 'true' then
    server.call('UNLINK', job)
  else
    server.call('ZADD', completed, now, id)
    server.call('HSET', job, 'state', 'completed', 'returnvalue', value, 'finishedOn', now)
  end
  tell(events, 'event', 'completed', 'jobId', id, 'returnvalue', value)
  local minute = 'm:' .. string.format('%.0f', tonumber(now) - tonumber(now) % 60000)
  server.call('HINCRBY', metrics, minute .. ':c', 1)
  server.call('HINCRBY', metrics, minute .. ':d', tonumber(now) - tonumber(args[16]))
  local found = server.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', 1, 'STREAMS', stream, '>')
  if not found then
    return {'NEXT_NONE', id}
  end
  local next_entry, fields = unpack(found[1][2][1])
  local next_job = prefix_of(stream, 'stream') .. 'job:' .. fields[2]
  server.call('HSET', next_job, 'state', 'active', 'processedOn', now, 'lastActive', now)
  return {'NEXT_HASH', id, fields[2], next_entry, unpack(server.call('HGETALL', next_job))}
end)
