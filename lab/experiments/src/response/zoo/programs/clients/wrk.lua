-- wrk asks for the answers of a plan: wrk -s wrk.lua URL -- PLAN
local paths, at = {}, 0

function init(arguments)
	for line in io.lines(arguments[1]) do
		local service, answer, pieces = line:match("^%S+ (%S+) (%S+) %S+ (%S+)")
		paths[#paths + 1] = string.format("/?ms=%s&size=%s&pieces=%s", service, answer, pieces)
	end
end

function request()
	at = at % #paths + 1
	return wrk.format("GET", paths[at])
end
