-- What all scripts share: how a request looks, and the one JSON line at the end.
--
-- A script counts in globals of its thread: `records` that came back, answers that are `wrong`, the first of
-- these, and requests that were no part of the work but kept it going (`refills`). There is one thread (-t1), so its globals are the whole count. wrk counts statuses of 400 and
-- above itself; other than 200 are wrong all the same wherever a script looks at answers.

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
