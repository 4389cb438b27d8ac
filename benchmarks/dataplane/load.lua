-- The load that wrk sends: requests from a file, in turn. What came of it is printed as a line of JSON.
--
--   REQUESTS           file with the requests: of each its length and a line feed, then its bytes
--   MEAN_PAUSE_MS      mean of the pauses that each connection makes between requests; no pauses without it

local requests, turn = {}, 0

function init()
  local file = assert(io.open(os.getenv("REQUESTS"), "rb"))
  while true do
    local length = file:read("*n")
    if not length then break end
    file:read(1)
    requests[#requests + 1] = file:read(length)
  end
  file:close()
  math.randomseed(1)
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

local pause = tonumber(os.getenv("MEAN_PAUSE_MS"))
if pause then
  function delay()
    return math.floor(-pause * math.log(1 - math.random()) + math.random())
  end
end

function done(summary, latency)
  local errors = summary.errors
  print(string.format(
    'JSON {"requests":%d,"microseconds":%d,"p50_us":%d,"p99_us":%d,"max_us":%d,' ..
    '"connect":%d,"read":%d,"write":%d,"timeout":%d,"status":%d}',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), latency.max,
    errors.connect, errors.read, errors.write, errors.timeout, errors.status))
end
