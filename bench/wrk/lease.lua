-- Claims jobs and acks every claim. Arguments: path, node, jobs per claim, file with a write of FILL jobs.
--
-- wrk does not report on which connection an answer arrived, and it does not matter: an ack is the next
-- request of any free connection. A claim that returns fewer jobs, or an ack that misses one, is wrong: the
-- queue ran empty, or another client got a job. `records` counts acked jobs. A queue that runs low is
-- refilled, so that the first fill does not limit the length of a run; `refills` are counted: they cost time.

dofile(debug.getinfo(1, "S").source:match("@(.*/)") .. "report.lua")

local FILL, LOW = 1000, 4000
local path, node, most, claim, refill
local waiting, waiting_first, waiting_last = {}, 1, 0
local refills_due = 0

local function enqueue(text)
   waiting_last = waiting_last + 1
   waiting[waiting_last] = text
end

function init(args)
   path, node, most = args[1], args[2], tonumber(args[3])
   claim = post(path .. "/claim", string.format('{"node":"%s","max":%d}', node, most))
   local file = assert(io.open(args[4], "rb"))
   refill = post(path, file:read("*a"))
   file:close()
end

function request()
   if waiting_first > waiting_last then
      return claim
   end
   local text = waiting[waiting_first]
   waiting[waiting_first] = nil
   waiting_first = waiting_first + 1
   return text
end

local function note_claim(status, body)
   local seqs = {}
   for seq in body:gmatch('"%$seq":(%d+)') do
      seqs[#seqs + 1] = seq
   end
   if #seqs ~= most then
      note_wrong(status, body)
   end
   if #seqs > 0 then
      local listed = table.concat(seqs, ",")
      enqueue(post(path .. "/ack", string.format('{"node":"%s","seqs":[%s]}', node, listed)))
   end
   local ready = tonumber(body:match('"ready":(%d+)', -200))
   if ready + refills_due * FILL < LOW then
      refills_due = refills_due + 1
      enqueue(refill)
   end
end

function response(status, _, body)
   if status ~= 200 then
      note_wrong(status, body)
   elseif body:find('"claimed":[', 1, true) then
      note_claim(status, body)
   elseif body:find('"seqs":[', 1, true) then
      refills_due = refills_due - 1
      refills = refills + 1
   elseif tonumber(body:match('"acked":(%d+)')) == most then
      records = records + most
   else
      note_wrong(status, body)
   end
end
