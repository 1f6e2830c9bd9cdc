-- Sends the same request again and again, with no Lua in between. Arguments: path, file with the body.
--
-- Only the status of answers is checked, so what was written must be verified afterwards.

dofile(debug.getinfo(1, "S").source:match("@(.*/)") .. "report.lua")

function init(args)
   local file = assert(io.open(args[2], "rb"))
   wrk.method, wrk.path, wrk.body = "POST", args[1], file:read("*a")
   wrk.headers["Content-Type"] = "application/json"
   file:close()
end
