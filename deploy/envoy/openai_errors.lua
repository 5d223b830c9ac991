-- Gives every answer to a REST client the shape OpenAI's clients expect, and every request an id that is safe to log and to repeat.
--
-- Runs in front of the transcoder, so it sees requests before and responses after translation. The gateway describes an error in two
-- trailers: x-http-status (statuses that no gRPC code maps to) and x-openai-error (the JSON body, ASCII).

local TYPES = { [401] = "authentication_error", [403] = "permission_error", [429] = "rate_limit_error" }
local GRPC_HEADERS = { "grpc-status", "grpc-message", "grpc-status-details-bin", "grpc-accept-encoding", "grpc-encoding" }
local MAX_ID = 128
local SCOPE = "inferway.edge" -- dynamic metadata: what the response side has to know about the request

local function is_grpc(headers)
  return (headers:get("content-type") or ""):sub(1, 16) == "application/grpc"
end

function envoy_on_request(handle)
  local headers = handle:headers()
  local fresh = headers:get("x-inferway-fresh-id")
  headers:remove("x-inferway-fresh-id")
  local id = headers:get("x-request-id")
  -- Two headers of that name are read as one value with a comma, which the pattern refuses too.
  if id == nil or #id > MAX_ID or not id:match("^[%w._:-]+$") then
    headers:replace("x-request-id", fresh)
  end
  handle:streamInfo():dynamicMetadata():set(SCOPE, "rest", not is_grpc(headers))
end

local function type_of(status)
  return TYPES[status] or (status >= 500 and "server_error" or "invalid_request_error")
end

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\" }

-- A grpc-message header (percent-encoded) as the inside of a JSON string.
local function json_text(message)
  local text = message:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
  return (text:gsub('[%c"\\]', function(char) return ESCAPES[char] or string.format("\\u%04x", char:byte()) end))
end

-- The JSON that the transcoder makes of a gRPC status; its message is already escaped.
local function message_in(text)
  return text:match('^{"code":%d+,"message":"(.-)","details":%[') or text:match('^{"code":%d+,"message":"(.*)"}%s*$')
end

function envoy_on_response(handle)
  local headers = handle:headers()
  local request = handle:streamInfo():dynamicMetadata():get(SCOPE) or {}
  -- A refusal whose details the transcoder cannot read stays gRPC, so the request decides, not the response.
  if not request.rest and is_grpc(headers) then return end
  local grpc_message = headers:get("grpc-message") or ""
  for _, name in ipairs(GRPC_HEADERS) do headers:remove(name) end
  local err, override = headers:get("x-openai-error"), headers:get("x-http-status")
  headers:remove("x-openai-error")
  headers:remove("x-http-status")
  local status = tonumber(override) or tonumber(headers:get(":status"))
  if err == nil and status < 400 then return end -- ordinary traffic ends here and nothing was buffered
  if override then headers:replace(":status", override) end
  if err == nil then
    local body = handle:body(true)
    local text = tostring(body:getBytes(0, body:length()))
    if text:sub(1, 9) == '{"error":' then return end -- a local reply, already shaped
    local message = message_in(text) or json_text(grpc_message)
    if message == "" then message = "The request was not accepted." end
    err = string.format('{"error":{"message":"%s","type":"%s","param":null,"code":null}}', message, type_of(status))
    headers = handle:headers() -- header handles die when body() yields
  end
  headers:replace("content-type", "application/json")
  headers:replace("content-length", tostring(#err))
  handle:body(true):setBytes(err)
end
