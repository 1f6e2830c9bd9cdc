-- Reads pages of a log from random cursors. Arguments: path, limit, newest seq, size of a record's data.
--
-- The length of a page is computed from its first seq and its next cursor, which is right if nothing was
-- deleted from the log. A page must also have at least the bytes of the data of `limit` records.

dofile(debug.getinfo(1, "S").source:match("@(.*/)") .. "report.lua")

local REQUESTS = 10000
local TAIL = 400 -- long enough for everything behind the records
local limit, size_min
local requests = {}

function init(args)
   limit = tonumber(args[2])
   size_min = limit * tonumber(args[4])
   math.randomseed(1)
   for i = 1, REQUESTS do
      local from = math.random(0, tonumber(args[3]) - limit)
      requests[i] = post(args[1], string.format('{"from_seq":%d,"limit":%d}', from, limit))
   end
end

function request()
   return requests[math.random(REQUESTS)]
end

function response(status, _, body)
   local first = body:match('"%$seq":(%d+)')
   local last = body:match('"next_from_seq":(%d+)', -TAIL)
   local count = first and last and last - first + 1
   if status ~= 200 or count ~= limit or #body < size_min then
      note_wrong(status, body)
   else
      records = records + count
   end
end
