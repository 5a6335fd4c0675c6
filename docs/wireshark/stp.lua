-- The Scheduled Transfer Protocol in Wireshark and tshark.
--
-- The layout is that of docs/spec/stp.md. It needs nothing but the Lua that
-- Wireshark brings (5.2 to 5.4), so no bit operators and no bit library: fields
-- within a byte are read with TvbRange:bitfield.
--
-- The filter name is "st": "stp" is the Spanning Tree Protocol.

local st = Proto("st", "Scheduled Transfer Protocol")

local HEADER_LEN = 40
local EXTENSION_LEN = 16
-- The longest message that goes with its request.
local MOST_EAGER = 1024

st.prefs.udp_port = Pref.uint("UDP port", 8181, "Conversations on other ports are found too")

-- ---- Names ---------------------------------------------------------------------

local operations = {
    "Request_Connection", "Connection_Answer", "Request_Disconnect", "Disconnect_Answer",
    "Disconnect_Complete", "Request_To_Send", "Request_Answer", "Request_To_Receive",
    "Clear_To_Send", "Data", "Request_Memory_Region", "Memory_Region_Available", "Put", "Get",
    "FetchOp", "FetchOp_Complete", "Request_State", "Request_State_Response", "End", "End_Ack",
}

-- Their numbers.
local OP = {}
for number, name in ipairs(operations) do OP[name] = number end

local reasons = {
    "refused by the user at the other side", "nobody listens at that port",
    "the other side has no room for more", "the two sides cannot agree on sizes or versions",
    "message too long: it does not fit the memory that is meant for it",
    "ended by the user at the other side", "the connection is being closed",
    "it is over at the other side", "the memory region does not exist, or not any more",
    "outside of the memory region", "the memory region was not given for that",
    "the word is not at a multiple of its width", "the other side could not use its memory",
    "the other side does not know that operation", "the other side has stopped answering",
}

local functions = { "load", "store", "swap", "add", "and", "or", "exclusive or", "compare and swap" }

local topics = { [0] = "connection", "Transfer", "memory", "fetched", "Get refused", "size" }

local checksum_states = { [0] = "Bad", "Good", "Unverified", "Absent" }

-- Bit numbers are those of TvbRange:bitfield: 0 is the highest.
local flags = {
    { name = "LINK", bit = 0, mask = 0x80, words = "This link belongs to the connection" },
    { name = "NOTIFY", bit = 1, mask = 0x40, words = "Tell the user" },
    { name = "ANSWER", bit = 2, mask = 0x20, words = "Answer, or by the receiver" },
    { name = "LIMITED", bit = 3, mask = 0x10, words = "Less is taken than was offered" },
    { name = "SUM", bit = 4, mask = 0x08, words = "Has a checksum" },
    { name = "LAST", bit = 5, mask = 0x04, words = "Last, complete, or answer now" },
    { name = "RESEND", bit = 6, mask = 0x02, words = "Send again" },
    { name = "REJECTED", bit = 7, mask = 0x01, words = "Rejected, aborted or void" },
}

-- The flags that an operation may have beside SUM.
local allowed_flags = {
    [OP.Connection_Answer] = { REJECTED = true },
    [OP.Request_Disconnect] = { REJECTED = true },
    [OP.Request_To_Send] = { ANSWER = true, LAST = true },
    [OP.Request_Answer] = { REJECTED = true, LIMITED = true, ANSWER = true },
    [OP.Clear_To_Send] = { RESEND = true, LIMITED = true },
    [OP.Data] = { LAST = true },
    [OP.Memory_Region_Available] = { REJECTED = true },
    [OP.Put] = { LAST = true, NOTIFY = true, REJECTED = true },
    [OP.Request_State] = { LAST = true, LINK = true },
    [OP.Request_State_Response] = { LAST = true, REJECTED = true, LINK = true },
    [OP.End] = { ANSWER = true },
    [OP.End_Ack] = { ANSWER = true },
}

-- ---- Fields --------------------------------------------------------------------

-- The header: name, kind and title of each field, where it lies, how long it is.
local header = {
    { "op", "uint8", "Op", 0, 1, base.DEC, operations },
    { "flags", "uint8", "Flags", 1, 1, base.HEX },
    { "param", "uint16", "Param", 2, 2, base.HEX },
    { "d_port", "uint16", "D_Port", 4, 2 },
    { "s_port", "uint16", "S_Port", 6, 2 },
    { "d_key", "uint32", "D_Key", 8, 4, base.HEX },
    { "cksum", "uint16", "Cksum", 12, 2, base.HEX },
    { "sync", "uint16", "Sync", 14, 2 },
    { "b_num", "uint32", "B_num", 16, 4 },
    { "bufx", "uint32", "Bufx", 20, 4, base.HEX },
    { "offset", "uint32", "Offset", 24, 4 },
    { "t_len", "uint64", "T_len", 28, 8 },
    { "d_id", "uint16", "D_id", 36, 2 },
    { "s_id", "uint16", "S_id", 38, 2 },
}

-- What they mean, and what lies behind the header.
local f = {
    cksum_status = ProtoField.uint8("st.cksum.status", "Checksum status", base.DEC, checksum_states),
    extension = ProtoField.bytes("st.extension", "Extension"),
    secret = ProtoField.bytes("st.secret", "Secret"),
    proof = ProtoField.bytes("st.proof", "Proof"),
    payload = ProtoField.bytes("st.payload", "Payload"),
    padding = ProtoField.bytes("st.padding", "Padding of the carrier"),
    serial = ProtoField.uint32("st.serial", "Serial number"),
    reason = ProtoField.uint8("st.reason", "Reason", base.DEC, reasons),
    version = ProtoField.uint8("st.version", "Version"),
    max_stu = ProtoField.uint8("st.max_stu", "Largest STU, log2"),
    buffer = ProtoField.uint8("st.buffer", "Size of buffers, log2"),
    tail = ProtoField.uint8("st.tail", "Bytes of each packet that stay free"),
    slots = ProtoField.uint8("st.slots", "Slots"),
    s_key = ProtoField.uint32("st.s_key", "S_Key", base.HEX),
    hello = ProtoField.bytes("st.hello", "Hello"),
    length = ProtoField.uint64("st.length", "Length"),
    max_block = ProtoField.uint16("st.max_block", "Largest Block, log2"),
    opaque = ProtoField.uint32("st.opaque", "Opaque", base.HEX),
    answers = ProtoField.uint32("st.answers", "Answers the Request_To_Receive with serial"),
    attempt = ProtoField.uint8("st.attempt", "Attempt"),
    stu = ProtoField.uint16("st.stu", "Size of STUs"),
    eager = ProtoField.uint16("st.eager", "Messages taken with their request, up to"),
    block_size = ProtoField.uint8("st.block_size", "Size of Blocks, log2"),
    block = ProtoField.uint32("st.block", "Block"),
    bufx_index = ProtoField.uint16("st.bufx.index", "Index"),
    bufx_generation = ProtoField.uint16("st.bufx.generation", "Generation"),
    lead = ProtoField.uint32("st.lead", "Lead"),
    count = ProtoField.uint16("st.count", "Granted STUs"),
    behind = ProtoField.uint16("st.behind", "Blocks that are not acknowledged"),
    bitmap = ProtoField.uint64("st.bitmap", "STUs to send again", base.HEX),
    hold = ProtoField.relative_time("st.hold", "The grant waited at the sender"),
    rights = ProtoField.uint8("st.rights", "Rights", base.HEX),
    may_get = ProtoField.bool("st.rights.get", "Get", 8, nil, 0x01),
    may_put = ProtoField.bool("st.rights.put", "Put", 8, nil, 0x02),
    may_fetch = ProtoField.bool("st.rights.fetch", "FetchOp", 8, nil, 0x04),
    name = ProtoField.uint32("st.name", "Name of the region", base.HEX),
    handle = ProtoField.uint32("st.handle", "Region", base.HEX),
    place = ProtoField.uint64("st.place", "Place in the region"),
    payload_len = ProtoField.uint32("st.payload_len", "Length of the payload"),
    overtakes = ProtoField.uint16("st.overtakes", "Packets before it that it may overtake"),
    part = ProtoField.uint32("st.part", "Place in its Put, in units of 8 bytes"),
    window = ProtoField.uint16("st.window", "Packets of Puts that are taken in"),
    first_ahead = ProtoField.uint16("st.ahead.first", "Puts to the lowest bit"),
    ahead = ProtoField.uint64("st.ahead", "Puts in place beyond", base.HEX),
    marked = ProtoField.uint16("st.marked", "Puts that came marked"),
    after = ProtoField.uint32("st.after", "After all Puts and FetchOps below"),
    below = ProtoField.uint32("st.below", "All below"),
    get_len = ProtoField.uint32("st.get_len", "Length"),
    width = ProtoField.uint8("st.width", "Width in bytes"),
    func = ProtoField.uint8("st.function", "Function", base.DEC, functions),
    operand = ProtoField.uint64("st.operand", "Operand", base.HEX),
    expected = ProtoField.uint64("st.expected", "Expected", base.HEX),
    topic = ProtoField.uint8("st.topic", "Topic", base.DEC, topics),
    token = ProtoField.uint64("st.token", "Token", base.HEX),
    acked = ProtoField.uint32("st.acked", "In place: all Blocks below"),
    size = ProtoField.uint32("st.size", "Size of the packet"),
    filling = ProtoField.bytes("st.filling", "Filling"),
    old = ProtoField.uint64("st.old", "Old value", base.HEX),
}
for _, field in ipairs(header) do
    local name, kind, title, _, _, display, values = table.unpack(field, 1, 7)
    f[name] = ProtoField[kind]("st." .. name, title, display or base.DEC, values)
end
for _, flag in ipairs(flags) do
    flag.field = ProtoField.bool("st.flags." .. flag.name:lower(), flag.words, 8, nil, flag.mask)
    f[flag.name] = flag.field
end
st.fields = f

local function problem(name, words, group)
    return ProtoExpert.new("st.expert." .. name, words, group, expert.severity.ERROR)
end
local e = {
    truncated = problem("truncated", "Truncated", expert.group.MALFORMED),
    unsupported = problem("unsupported", "Unknown operation or function", expert.group.MALFORMED),
    malformed = problem("malformed", "A field holds what it may not", expert.group.MALFORMED),
    checksum = problem("checksum", "Bad checksum", expert.group.CHECKSUM),
}
st.experts = e

-- ---- What is common to the operations ------------------------------------------

-- A Connection_Answer that gives a connection is longer than one that refuses.
local function head_len(op, set)
    if op == OP.Clear_To_Send or op == OP.Get or op == OP.FetchOp then return HEADER_LEN + EXTENSION_LEN end
    if op == OP.Connection_Answer and not set.REJECTED then return HEADER_LEN + EXTENSION_LEN end
    return HEADER_LEN
end

-- Where the proof lies, and how long it is.
local proofs = {
    [OP.Request_Disconnect] = { 20, 8 }, [OP.Disconnect_Answer] = { 20, 8 },
    [OP.Disconnect_Complete] = { 20, 8 }, [OP.Request_Answer] = { 20, 8 },
    [OP.FetchOp_Complete] = { 20, 8 }, [OP.Request_State] = { 20, 8 },
    [OP.Request_State_Response] = { 20, 8 }, [OP.End] = { 20, 8 }, [OP.End_Ack] = { 20, 8 },
}
local function proof_of(op, set, topic)
    if op == OP.Connection_Answer then
        if set.REJECTED then return { 20, 8 } end
        return { HEADER_LEN + 8, 8 }
    elseif op == OP.Memory_Region_Available then
        if set.REJECTED then return { 20, 8 } end
        return { 24, 4 }
    elseif op == OP.Request_State_Response and topic == 1 then
        return { 20, 4 }
    end
    return proofs[op]
end

-- Data and Put need no checksum; everything else does.
local function must_be_sealed(op) return op ~= OP.Data and op ~= OP.Put end

-- The Internet checksum over the first bytes (RFC 1071).
local function is_sealed(tvb, len)
    local bytes = tvb:raw(0, len)
    local sum = 0
    for i = 1, len - 1, 2 do
        local high, low = bytes:byte(i, i + 1)
        sum = sum + high * 256 + low
    end
    if len % 2 == 1 then sum = sum + bytes:byte(len) * 256 end
    while sum > 0xffff do sum = sum % 0x10000 + math.floor(sum / 0x10000) end
    return sum == 0xffff
end

local function read_flags(tvb)
    local set = {}
    if tvb:captured_len() < 2 then return set end
    for _, flag in ipairs(flags) do
        if tvb(1, 1):bitfield(flag.bit, 1) == 1 then set[flag.name] = true end
    end
    return set
end

local function foreign_flag(set, allowed)
    for name in pairs(set) do
        if name ~= "SUM" and not (allowed and allowed[name]) then return name end
    end
end

-- One packet under way: its bytes, the items of its header fields, and what is
-- said of it in the Info column.
local Packet = {}
Packet.__index = Packet

function Packet:fault(kind, words, item)
    (item or self.tree):add_proto_expert_info(e[kind], words)
    table.insert(self.faults, words)
end

function Packet:say(words, ...) self.info = self.info .. " " .. words:format(...) end

-- A power of two.
function Packet:log2(item, field, range, value)
    local words = value <= 31 and string.format(" (%d bytes)", 2 ^ value) or ""
    item:add(field, range, value):append_text(words)
    if value > 31 then self:fault("malformed", "a size above 2^31", item) end
end

-- The size of an STU.
function Packet:stu(item, range)
    item:add(f.stu, range)
    if range:uint() == 0 then self:fault("malformed", "STUs of nothing", item) end
end

-- A number of six bits and two sizes, as they share Param.
function Packet:sizes(number, first, second)
    local item, range = self.items.param, self.tvb(2, 2)
    item:add(number, range, range:bitfield(0, 6))
    self:log2(item, first, range, range:bitfield(6, 5))
    self:log2(item, second, range, range:bitfield(11, 5))
end

-- The serial number in B_num; Sync repeats its low half.
function Packet:serial(field)
    local serial = self.tvb(16, 4)
    self.items.b_num:add(field or f.serial, serial)
    if self.tvb(18, 2):uint() ~= self.tvb(14, 2):uint() then
        self:fault("malformed", "Sync is not the low half of the serial number", self.items.sync)
    end
    return serial:uint()
end

function Packet:reason(range)
    local number = range:uint()
    self.items.param:add(f.reason, range)
    self:say("(" .. (reasons[number] or reasons[1]) .. ")")
end

-- Is it the rejected form? Then Param holds the reason.
function Packet:is_rejected(word)
    if not self.flags.REJECTED then return false end
    self:say(word or "rejected")
    self:reason(self.tvb(3, 1))
    return true
end

-- Bufx as it names a granted Block.
function Packet:granted_block()
    self.items.bufx:add(f.bufx_generation, self.tvb(20, 2))
    self.items.bufx:add(f.bufx_index, self.tvb(22, 2))
end

function Packet:rights(range)
    local item = self.items.param:add(f.rights, range)
    item:add(f.may_get, range)
    item:add(f.may_put, range)
    item:add(f.may_fetch, range)
end

-- A number in T_len.
function Packet:long(field)
    local range = self.tvb(28, 8)
    self.items.t_len:add(field, range)
    return tostring(range:uint64())
end

-- ---- Operation by operation ----------------------------------------------------

local parse = {}

local function offer(p)
    local i, tvb = p.items, p.tvb
    p:sizes(f.version, f.max_stu, f.buffer)
    i.offset:add(f.tail, tvb(26, 1))
    i.offset:add(f.slots, tvb(27, 1))
    i.bufx:add(f.s_key, tvb(20, 4))
    i.t_len:add(f.hello, tvb(28, 8))
    if tvb(24, 2):uint() ~= 0 then p:fault("malformed", "an offer of more than 16 bits", i.offset) end
    local sizes = tvb(2, 2)
    p:say("STU 2^%d buffer 2^%d slots %d", sizes:bitfield(6, 5), sizes:bitfield(11, 5), tvb(27, 1):uint())
end

-- The secret is in three pieces where the packet is no longer than a header.
parse[OP.Request_Connection] = function(p)
    offer(p)
    p.items.b_num:add(f.secret, p.tvb(16, 4)):append_text(" (first half)")
    p.items.sync:add(f.secret, p.tvb(14, 2)):append_text(" (third quarter)")
    p.items.d_id:add(f.secret, p.tvb(36, 2)):append_text(" (last quarter)")
end

parse[OP.Connection_Answer] = function(p)
    if p:is_rejected() then return end
    offer(p)
    p.items.extension:add(f.secret, p.tvb(HEADER_LEN, 8))
end

parse[OP.Request_Disconnect] = function(p) p:is_rejected("abort") end

-- They say all in their header.
parse[OP.Disconnect_Answer] = function() end
parse[OP.Disconnect_Complete] = parse[OP.Disconnect_Answer]

-- How many bytes are behind a request that says so.
local function eager_len(tvb)
    if tvb(28, 4):uint() > 0 then return MOST_EAGER + 1 end
    return math.min(tvb(32, 4):uint(), MOST_EAGER + 1)
end

parse[OP.Request_To_Send] = function(p)
    p:say("transfer " .. p:serial() .. " of " .. p:long(f.length) .. " bytes")
    p:log2(p.items.param, f.max_block, p.tvb(2, 2), p.tvb(2, 2):uint())
    p.items.offset:add(f.opaque, p.tvb(24, 4))
    if p.flags.ANSWER then
        p.items.bufx:add(f.answers, p.tvb(20, 4))
        p:say("answering read " .. p.tvb(20, 4):uint())
    end
    if p.flags.LAST then
        p:say("with its bytes")
        if eager_len(p.tvb) > MOST_EAGER then
            p:fault("malformed", "too long to go with its request", p.items.t_len)
        end
    end
end

parse[OP.Request_Answer] = function(p)
    p:say((p.flags.ANSWER and "read " or "transfer ") .. p:serial())
    if p.flags.REJECTED and p.flags.LIMITED then
        p:fault("malformed", "rejected and limited", p.items.flags)
    elseif p.flags.LIMITED then
        p:say("limited to " .. p:long(f.length) .. " bytes")
    elseif not p:is_rejected() then
        p:say("pending")
    end
end

parse[OP.Request_To_Receive] = function(p)
    p:say("read " .. p:serial() .. " of " .. p:long(f.length) .. " bytes")
    p.items.offset:add(f.opaque, p.tvb(24, 4))
end

parse[OP.Clear_To_Send] = function(p)
    local i, tvb = p.items, p.tvb
    i.param:add(f.attempt, tvb(2, 2), tvb(2, 2):bitfield(0, 6))
    p:log2(i.param, f.block_size, tvb(2, 2), tvb(2, 2):bitfield(11, 5))
    p:stu(i.extension, tvb(HEADER_LEN, 2))
    i.extension:add(f.eager, tvb(HEADER_LEN + 2, 2))
    i.b_num:add(f.block, tvb(16, 4))
    p:granted_block()
    p:say("block %d offset %d", tvb(16, 4):uint(), tvb(24, 4):uint())
    local count
    if p.flags.RESEND then
        i.t_len:add(f.bitmap, tvb(28, 8))
        count = 0
        for byte = 28, 35 do
            for bit = 0, 7 do count = count + tvb(byte, 1):bitfield(bit, 1) end
        end
        p:say("again " .. count .. " STUs")
    else
        i.t_len:add(f.lead, tvb(28, 4))
        i.t_len:add(f.count, tvb(32, 2))
        i.t_len:add(f.behind, tvb(34, 2))
        count = tvb(32, 2):uint()
        p:say("+" .. count .. " STUs")
    end
    if count == 0 then p:fault("malformed", "a grant of no STU", i.t_len) end
    if p.flags.LIMITED then p:say("limited") end
end

parse[OP.Data] = function(p)
    local i, tvb = p.items, p.tvb
    i.b_num:add(f.block, tvb(16, 4))
    p:granted_block()
    i.t_len:add(f.serial, tvb(28, 4))
    i.t_len:add(f.opaque, tvb(32, 4))
    if tvb(30, 2):uint() ~= tvb(14, 2):uint() then
        p:fault("malformed", "Sync is not the low half of the serial number", i.sync)
    end
    local exponent, mantissa = tvb(2, 2):bitfield(0, 4), tvb(2, 2):bitfield(4, 12)
    local nanos = mantissa * 2 ^ exponent * 64
    local seconds = math.floor(nanos / 1e9)
    i.param:add(f.hold, tvb(2, 2), NSTime.new(seconds, math.floor(nanos - seconds * 1e9)))
    p:say("block %d offset %d %d bytes", tvb(16, 4):uint(), tvb(24, 4):uint(), p.len - HEADER_LEN)
    if p.flags.LAST then p:say("last") end
end

parse[OP.Request_Memory_Region] = function(p)
    local serial = p:serial()
    p.items.offset:add(f.name, p.tvb(24, 4))
    p:rights(p.tvb(3, 1))
    p:say("%d name 0x%08x of %s bytes", serial, p.tvb(24, 4):uint(), p:long(f.length))
end

parse[OP.Memory_Region_Available] = function(p)
    p:say(tostring(p:serial()))
    if p:is_rejected() then return end
    p.items.bufx:add(f.handle, p.tvb(20, 4))
    p:rights(p.tvb(3, 1))
    p.items.s_id:add(f.window, p.tvb(38, 2))
    p:say("region 0x%08x of %s bytes", p.tvb(20, 4):uint(), p:long(f.length))
end

-- Serial, region and place of an access to it.
local function access(p)
    p.items.bufx:add(f.handle, p.tvb(20, 4))
    p:say("%d region 0x%08x place %s", p:serial(), p.tvb(20, 4):uint(), p:long(f.place))
end

parse[OP.Put] = function(p)
    access(p)
    p.items.offset:add(f.payload_len, p.tvb(24, 4))
    p.items.param:add(f.overtakes, p.tvb(2, 2))
    p.items.d_id:add(f.part, p.tvb(36, 4))
    p:say(p.flags.REJECTED and "void" or p.tvb(24, 4):uint() .. " bytes")
end

parse[OP.Get] = function(p)
    local i, tvb, extension = p.items, p.tvb, p.items.extension
    p:serial(f.after)
    p:granted_block()
    p:stu(i.param, tvb(2, 2))
    extension:add(f.handle, tvb(40, 4))
    extension:add(f.get_len, tvb(44, 4))
    extension:add(f.serial, tvb(48, 4))
    extension:add(f.block, tvb(52, 4))
    p:say("%d region 0x%08x place %s %d bytes", tvb(48, 4):uint(), tvb(40, 4):uint(), p:long(f.place), tvb(44, 4):uint())
end

parse[OP.FetchOp] = function(p)
    access(p)
    local param, width, func = p.items.param, p.tvb(2, 1), p.tvb(3, 1)
    param:add(f.width, width)
    param:add(f.func, func)
    p.items.extension:add(f.operand, p.tvb(40, 8))
    p.items.extension:add(f.expected, p.tvb(48, 8))
    if width:uint() ~= 4 and width:uint() ~= 8 then
        p:fault("malformed", "a width that is not 4 or 8", param)
    end
    local name = functions[func:uint()]
    if name then p:say(name) else p:fault("unsupported", "unknown function", param) end
end

parse[OP.FetchOp_Complete] = function(p) p:say("below " .. p:serial(f.below)) end

-- The flags that each topic of an answer may have.
local topic_flags = {
    [0] = { LINK = true }, [1] = { LAST = true }, [2] = { REJECTED = true }, [4] = { REJECTED = true },
}

-- Adds the topic; nothing where it is unknown.
local function topic_of(p, most, allowed)
    local topic = p.tvb(3, 1):uint()
    p.items.param:add(f.topic, p.tvb(3, 1))
    if topic > most then
        p:fault("malformed", "unknown topic", p.items.param)
        return nil
    end
    p:say(topics[topic])
    local foreign = foreign_flag(p.flags, allowed[topic])
    if foreign then p:fault("malformed", "flag " .. foreign .. " with this topic", p.items.flags) end
    return topic
end

-- The size of a packet; none is shorter than its header.
function Packet:size()
    local size = self:serial(f.size)
    self:long(f.token)
    self:say(tostring(size))
    if size < HEADER_LEN then
        self:fault("malformed", "a packet shorter than its header", self.items.b_num)
    end
    return size
end

parse[OP.Request_State] = function(p)
    local topic = topic_of(p, 5, { [0] = { LAST = true, LINK = true } })
    if topic == 3 or topic == 4 then p:fault("malformed", "no question", p.items.param) end
    if topic == 0 then
        p:long(f.token)
        p:say("token 0x" .. p.tvb(28, 8):uint64():tohex())
        if p.flags.LAST and not p.flags.LINK then
            p:fault("malformed", "flag LAST without LINK with this topic", p.items.flags)
        elseif p.flags.LAST then
            p:say("moved")
        elseif p.flags.LINK then
            p:say("link")
        end
    elseif topic == 1 then
        p:say(tostring(p:serial()))
    elseif topic == 5 then
        p:size()
    end
end

parse[OP.Request_State_Response] = function(p)
    local topic = topic_of(p, 5, topic_flags)
    if topic == 0 then
        p:long(f.token)
        p:say("token 0x" .. p.tvb(28, 8):uint64():tohex())
        if p.flags.LINK then p:say("challenge") end
    elseif topic == 1 then
        p.items.offset:add(f.acked, p.tvb(24, 4))
        p:say("%d blocks below %d of %s bytes", p:serial(), p.tvb(24, 4):uint(), p:long(f.length))
        if p.flags.LAST then p:say("complete") end
    elseif topic == 2 then
        p:say("applied below " .. p:serial(f.below))
        if not p.flags.REJECTED then
            p.items.d_id:add(f.first_ahead, p.tvb(36, 2))
            p.items.s_id:add(f.marked, p.tvb(38, 2))
            p.items.t_len:add(f.ahead, p.tvb(28, 8))
            if p.tvb(28, 8):uint64() ~= UInt64(0) then
                p:say("and 0x%s from %d on", p.tvb(28, 8):uint64():tohex(), p.tvb(16, 4):uint() + p.tvb(36, 2):uint())
            end
        end
    elseif topic == 3 then
        p:long(f.old)
        p:say(p:serial() .. " old 0x" .. p.tvb(28, 8):uint64():tohex())
    elseif topic == 4 then
        p:say(tostring(p:serial()))
        if not p.flags.REJECTED then p:fault("malformed", "a refusal that is none", p.items.flags) end
    elseif topic == 5 then
        p.whole = p:size()
        if p.whole > p.tvb:reported_len() then p:fault("truncated", "shorter than it says") end
    end
    if p.flags.REJECTED and (topic == 2 or topic == 4) then
        p:say("refused")
        p:reason(p.tvb(2, 1))
    end
end

parse[OP.End_Ack] = function(p)
    p:say("transfer " .. p:serial() .. (p.flags.ANSWER and " by the receiver" or ""))
end

parse[OP.End] = function(p)
    parse[OP.End_Ack](p)
    p:reason(p.tvb(3, 1))
end

-- ---- The packet ----------------------------------------------------------------

-- The header field by field; what they mean is added below each.
local function add_header(p, op)
    for _, field in ipairs(header) do
        local name, _, _, at, len = table.unpack(field, 1, 5)
        p.items[name] = p.tree:add(f[name], p.tvb(at, len))
    end
    for _, flag in ipairs(flags) do p.items.flags:add(flag.field, p.tvb(1, 1)) end
    if head_len(op, p.flags) > HEADER_LEN then
        p.items.extension = p.tree:add(f.extension, p.tvb(HEADER_LEN, EXTENSION_LEN))
    end
    local proof = proof_of(op, p.flags, p.tvb(3, 1):uint())
    if proof then p.tree:add(f.proof, p.tvb(proof[1], proof[2])) end
end

-- Where the packet ends: behind that, the carrier has padded it. Only the grant
-- says how long Data is, so there all that came counts.
local function packet_len(tvb, op, set)
    if op == OP.Data then return tvb:reported_len() end
    if op == OP.Put then return HEADER_LEN + tvb(24, 4):uint() end
    if op == OP.Request_To_Send and set.LAST and eager_len(tvb) <= MOST_EAGER then
        return HEADER_LEN + eager_len(tvb)
    end
    return head_len(op, set)
end

local function check_flags(p, op)
    local foreign = foreign_flag(p.flags, allowed_flags[op])
    if foreign then
        p:fault("malformed", "flag " .. foreign .. " with this operation", p.items.flags)
    elseif must_be_sealed(op) and not p.flags.SUM then
        p:fault("checksum", "no checksum where there must be one", p.items.flags)
    end
end

local function check_sum(p)
    local state = 3
    if p.flags.SUM then
        if p.tvb:captured_len() < p.len then
            state = 2
        else
            state = is_sealed(p.tvb, p.len) and 1 or 0
        end
    end
    p.items.cksum:add(f.cksum_status, p.tvb(12, 2), state):set_generated()
    if state == 0 then p:fault("checksum", "bad checksum", p.items.cksum) end
end

local function add_payload(p, op)
    local captured = p.tvb:captured_len()
    local from, to = head_len(op, p.flags), math.min(p.len, captured)
    if to > from then p.tree:add(f.payload, p.tvb(from, to - from)) end
    if captured > p.len then
        local field = p.whole and f.filling or f.padding
        p.tree:add(field, p.tvb(p.len, captured - p.len))
    end
end

function st.dissector(tvb, pinfo, root)
    pinfo.cols.protocol = "STP"
    local p = setmetatable({ tvb = tvb, items = {}, faults = {}, info = "" }, Packet)
    p.tree = root:add(st, tvb())
    local op = tvb:captured_len() > 0 and tvb(0, 1):uint() or 0
    p.flags = read_flags(tvb)
    p.info = operations[op] or ("Operation " .. op)
    p.tree:append_text(", " .. p.info)

    if not operations[op] and tvb:reported_len() >= HEADER_LEN then
        p.tree:add(f.op, tvb(0, 1))
        p:fault("unsupported", "unknown operation")
    elseif tvb:reported_len() < head_len(op, p.flags) then
        p:fault("truncated", "shorter than its header")
    elseif tvb:captured_len() < head_len(op, p.flags) then
        p:say("[not captured whole]")
    else
        p.len = packet_len(tvb, op, p.flags)
        add_header(p, op)
        check_flags(p, op)
        parse[op](p)
        if p.len > tvb:reported_len() then
            p.len = tvb:reported_len()
            p:fault("truncated", "shorter than its payload")
        end
        check_sum(p)
        add_payload(p, op)
    end
    for _, words in ipairs(p.faults) do p:say("[" .. words .. "]") end
    pinfo.cols.info = p.info
    return tvb:captured_len()
end

-- ---- Where packets are found ---------------------------------------------------

-- On any UDP port: a whole packet without payload with the right checksum is no
-- accident, and from then on all between those two sockets is ours.
local function found_on_udp(tvb, pinfo, root)
    if tvb:captured_len() < HEADER_LEN then return false end
    local op = tvb(0, 1):uint()
    local set = read_flags(tvb)
    local len = head_len(op, set)
    if not operations[op] or not must_be_sealed(op) then return false end
    if tvb:captured_len() ~= len or tvb:reported_len() ~= len then return false end
    if not set.SUM or foreign_flag(set, allowed_flags[op]) or not is_sealed(tvb, len) then
        return false
    end
    pinfo.conversation = st
    st.dissector(tvb, pinfo, root)
    return true
end

DissectorTable.get("ethertype"):add(0x8181, st)
DissectorTable.get("ip.proto"):add(118, st)
st:register_heuristic("udp", found_on_udp)

local udp_ports = DissectorTable.get("udp.port")
udp_ports:add_for_decode_as(st)
local udp_port = st.prefs.udp_port
if udp_port ~= 0 then udp_ports:add(udp_port, st) end

function st.prefs_changed()
    if udp_port == st.prefs.udp_port then return end
    if udp_port ~= 0 then udp_ports:remove(udp_port, st) end
    udp_port = st.prefs.udp_port
    if udp_port ~= 0 then udp_ports:add(udp_port, st) end
end
