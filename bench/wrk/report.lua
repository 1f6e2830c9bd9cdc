-- What all scripts share: building a request, and the one JSON line at the end.
--
-- A script counts in globals of its thread: `records` returned, `wrong` answers and the first of them, and
-- requests that are not part of the measured work but keep it going (`refills`). There is one thread (-t1),
-- so its globals are the totals. wrk itself counts statuses of 400 and above; scripts that check answers
-- count every status other than 200 as wrong.

local threads = {}
records, refills, wrong, first_wrong = 0, 0, 0, ""

function setup(thread)
   table.insert(threads, thread)
end

function post(path, body)
   return wrk.format("POST", path, {["Content-Type"] = "application/json"}, body)
end

function note_wrong(status, body)
   wrong = wrong + 1
   if first_wrong == "" then
      first_wrong = status .. " " .. body:sub(1, 200)
   end
end

function done(summary, latency, _)
   local thread, errors = threads[1], summary.errors
   local quoted = thread:get("first_wrong"):gsub('[%c"\\\128-\255]', ".")
   local values = {
      string.format('"requests": %d, "seconds": %.6f', summary.requests, summary.duration / 1e6),
      string.format('"status_errors": %d', errors.status),
      string.format('"socket_errors": %d', errors.connect + errors.read + errors.write),
      string.format('"timeouts": %d, "refills": %d', errors.timeout, thread:get("refills")),
      string.format('"records": %d, "wrong": %d', thread:get("records"), thread:get("wrong")),
      string.format('"p50_us": %d, "p99_us": %d', latency:percentile(50), latency:percentile(99)),
      string.format('"max_us": %d, "first_wrong": "%s"', latency.max, quoted),
   }
   print("{" .. table.concat(values, ", ") .. "}")
end
