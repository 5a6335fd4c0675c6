-- The frames of CLAN in Wireshark and tshark: on Ethernet and UDP.
--
-- The layout is that of docs/spec/clan.md. It needs nothing but the Lua that
-- Wireshark brings (5.2 to 5.4).

local clan = Proto("clan", "CLAN: distributed shared memory")

local HEADER_LEN, ENTRY_LEN, ADDRESS_LEN = 40, 18, 16
local ETHERTYPE, UDP_PORT = 0x88b5, 8182
local MOST_ENTRIES, MOST_BODY, MOST_PARAMETERS = 12, 128, 96

local KIND = {
    DATA = 0, ACK = 1, HELLO = 2, BYE = 3, STRANGER = 4, GROUP_DATA = 5, GROUP_ACK = 6, GROUP_PROBE = 7,
}
local kinds = {
    [0] = "Data", "Ack", "Hello", "Bye", "Stranger", "GroupData", "GroupAck", "GroupProbe",
}
local packets = { [0] = "Burst", "Command", "Reply", "Multicast" }
local stages = { "Ask", "Answer", "Confirm" }
local commands = {
    "Read", "ReadRefused", "WordOp", "WordReply", "OutOfBand", "Exception", "Barrier", "BarrierReached",
    "GroupInvite", "GroupStart", "GroupEnd",
}
local lengths = { 29, 10, 42, 18, 72, 17, 4, 4, 72, 12, 8 }
local functions = { [0] = "load", "store", "swap", "add", "and", "or", "exclusive or", "compare and swap" }
local messages = { "Message", "Connect", "Accept", "Refuse", "Disconnect", "Abort", "Undelivered", "Overrun" }
local reasons = {
    "no such aperture or key", "out of bounds", "forbidden", "malformed", "no room",
    "no endpoint", "memory failed", "refused",
}

local f = {
    mark = ProtoField.string("clan.mark", "Mark"),
    version = ProtoField.uint8("clan.version", "Version", base.DEC, nil, 0xf0),
    kind = ProtoField.uint8("clan.kind", "Kind", base.DEC, kinds, 0x0f),
    flags = ProtoField.uint8("clan.flags", "Flags", base.HEX),
    sum_flag = ProtoField.bool("clan.flags.sum", "SUM: the frame has an Internet sum", 8, nil, 1),
    ask = ProtoField.bool("clan.flags.ask", "ASK: acknowledge at once", 8, nil, 2),
    xoff = ProtoField.bool("clan.flags.xoff", "XOFF: send answers only", 8, nil, 4),
    late = ProtoField.bool("clan.flags.late", "LATE: the acknowledgement waited", 8, nil, 8),
    tag = ProtoField.uint64("clan.tag", "Tag", base.HEX),
    seq = ProtoField.uint32("clan.seq", "Sequence number"),
    ack = ProtoField.uint32("clan.ack", "Acknowledged before"),
    sack = ProtoField.uint64("clan.sack", "Kept behind it", base.HEX),
    credit = ProtoField.uint16("clan.credit", "Credit"),
    marks = ProtoField.uint8("clan.marks", "Marks of congestion"),
    entries = ProtoField.uint8("clan.entries", "Packets"),
    payload_len = ProtoField.uint16("clan.payload_len", "Payload length"),
    crc = ProtoField.uint32("clan.crc", "CRC-32C", base.HEX),
    sum = ProtoField.uint16("clan.sum", "Sum", base.HEX),
    padding = ProtoField.bytes("clan.padding", "Padding"),
    -- Addresses.
    packet = ProtoField.uint8("clan.packet", "Packet", base.DEC, packets, 0x30),
    host = ProtoField.uint16("clan.host", "Host"),
    slot = ProtoField.uint16("clan.slot", "Slot"),
    code = ProtoField.uint16("clan.command", "Command", base.DEC, commands),
    word = ProtoField.uint32("clan.word", "Word"),
    parameters = ProtoField.uint32("clan.parameters", "Bytes of parameters"),
    mask = ProtoField.uint8("clan.mask", "Bytes of the word", base.HEX),
    key = ProtoField.bytes("clan.key", "Key"),
    words = ProtoField.uint16("clan.words", "Words"),
    data = ProtoField.bytes("clan.data", "Data"),
    -- Commands.
    reply_slot = ProtoField.uint16("clan.reply.slot", "Reply to slot"),
    nonce = ProtoField.bytes("clan.reply.nonce", "Nonce"),
    len = ProtoField.uint32("clan.read.len", "Bytes to be read"),
    reason = ProtoField.uint8("clan.reason", "Reason", base.DEC, reasons),
    func = ProtoField.uint8("clan.word.function", "Function", base.DEC, functions),
    operand = ProtoField.uint64("clan.word.operand", "Operand", base.HEX),
    old = ProtoField.uint64("clan.word.old", "Held before", base.HEX),
    number = ProtoField.uint32("clan.number", "Number"),
    from_port = ProtoField.uint32("clan.oob.from", "From port"),
    to_port = ProtoField.uint32("clan.oob.to", "To port"),
    message = ProtoField.uint8("clan.oob.kind", "Message", base.DEC, messages),
    from_session = ProtoField.uint64("clan.oob.from_session", "Sender's session", base.HEX),
    to_session = ProtoField.uint64("clan.oob.to_session", "Receiver's session", base.HEX),
    body = ProtoField.bytes("clan.oob.body", "Body"),
    group_tag = ProtoField.uint64("clan.group.tag", "Tag of the stream", base.HEX),
    group_ack_tag = ProtoField.uint64("clan.group.ack_tag", "Tag of acknowledgements", base.HEX),
    group_seq = ProtoField.uint32("clan.group.seq", "From sequence number"),
    group_key = ProtoField.uint32("clan.group.key", "Number of the key", base.HEX),
    -- Beginning and end of links.
    stage = ProtoField.uint8("clan.hello.stage", "Stage", base.DEC, stages),
    wants_sums = ProtoField.bool("clan.hello.wants_sums", "Wants sums"),
    hello_host = ProtoField.uint16("clan.hello.host", "Host"),
    frames = ProtoField.uint16("clan.hello.frames", "Frames taken"),
    own_tag = ProtoField.uint64("clan.hello.tag", "Own tag", base.HEX),
    incarnation = ProtoField.uint64("clan.incarnation", "Incarnation", base.HEX),
    early = ProtoField.uint32("clan.hello.early", "Early bytes kept"),
    stranger_tag = ProtoField.uint64("clan.stranger.tag", "Unknown tag", base.HEX),
}
clan.fields = f

local function problem(name, words)
    return ProtoExpert.new("clan.expert." .. name, words, expert.group.MALFORMED, expert.severity.ERROR)
end
local e = {
    truncated = problem("truncated", "Truncated"),
    unsupported = problem("unsupported", "Unknown version, kind or command"),
    malformed = problem("malformed", "A field holds what it may not"),
    checksum = problem("checksum", "Bad CRC or sum"),
}
clan.experts = e

clan.prefs.udp_port = Pref.uint("UDP port", UDP_PORT, "The port that frames are looked for on")

-- CRC-32C (RFC 3720, 12.1), reflected.
local bxor, band, rshift = bit.bxor, bit.band, bit.rshift
local table_of = {}
for n = 0, 255 do
    local sum = n
    for _ = 1, 8 do
        sum = band(sum, 1) == 1 and bxor(rshift(sum, 1), 0x82f63b78) or rshift(sum, 1)
    end
    table_of[n] = sum
end
local function crc32c(bytes)
    local sum = -1
    for n = 1, #bytes do
        sum = bxor(rshift(sum, 8), table_of[band(bxor(sum, bytes:byte(n)), 0xff)])
    end
    return bxor(sum, -1) % 0x100000000
end

local function internet_sum(bytes)
    local sum = 0
    for n = 1, #bytes, 2 do
        sum = sum + bytes:byte(n) * 256 + (bytes:byte(n + 1) or 0)
    end
    while sum > 0xffff do sum = sum % 0x10000 + math.floor(sum / 0x10000) end
    return sum
end

local function is_zero(tvb, from, len)
    return tvb:raw(from, len) == string.rep("\0", len)
end

-- One run of set bits.
local function is_run(mask)
    while mask > 0 and mask % 2 == 0 do mask = mask / 2 end
    return mask > 0 and band(mask, mask + 1) == 0
end

local function ones(mask)
    local count = 0
    for n = 0, 7 do count = count + band(rshift(mask, n), 1) end
    return count
end

-- What an address says, and whether it is one.
local function read_address(tvb, at)
    local a = {
        kind = rshift(tvb(at, 1):uint(), 4) % 4,
        -- Its upper two bits stand before the kind.
        host = rshift(tvb(at, 1):uint(), 6) * 0x1000 + tvb(at, 2):uint() % 0x1000,
        slot = tvb(at + 2, 2):uint(),
        word = tvb(at + 4, 4):uint(),
        mask = tvb(at + 8, 1):uint(),
    }
    a.is_good = packets[a.kind] ~= nil and is_run(a.mask)
    return a
end

local function show_address(tree, tvb, at, a)
    tree:add(f.packet, tvb(at, 1))
    tree:add(f.host, tvb(at, 2), a.host)
    tree:add(a.kind == 1 and f.code or f.slot, tvb(at + 2, 2))
    tree:add(a.kind == 1 and f.parameters or f.word, tvb(at + 4, 4))
    tree:add(f.mask, tvb(at + 8, 1))
    tree:add(f.key, tvb(at + 9, 7))
end

-- How many bytes of payload an entry has; nothing where nobody writes such.
local function entry_len(a, words)
    if not a.is_good then return nil end
    if a.kind == 1 then
        local is_good = a.mask == 0xff and a.word >= 1 and a.word <= MOST_PARAMETERS
            and words == math.floor((a.word + 7) / 8)
        return is_good and a.word or nil
    end
    if a.mask ~= 0xff then return words == 1 and ones(a.mask) or nil end
    return words > 0 and a.word + words - 1 <= 0xffffffff and words * 8 or nil
end

local function show_reply(tree, tvb, at)
    tree:add(f.reply_slot, tvb(at, 2))
    tree:add(f.nonce, tvb(at + 2, 7))
end

local function show_inner(tree, tvb, at, words)
    local a = read_address(tvb, at)
    show_address(tree:add(tvb(at, ADDRESS_LEN), words), tvb, at, a)
    return a
end

-- Each shows the parameters of a command, and says whether they make sense, and
-- what there is to say of it in a word.
local show = {}

show[1] = function(tree, tvb, at)
    local a = show_inner(tree, tvb, at, "From")
    show_reply(tree, tvb, at + 16)
    tree:add(f.len, tvb(at + 25, 4))
    return a.is_good, string.format("%d bytes from slot %d word %d", tvb(at + 25, 4):uint(), a.slot, a.word)
end

show[2] = function(tree, tvb, at)
    show_reply(tree, tvb, at)
    tree:add(f.reason, tvb(at + 9, 1))
    local reason = reasons[tvb(at + 9, 1):uint()]
    return reason ~= nil, reason
end

show[3] = function(tree, tvb, at)
    local a = show_inner(tree, tvb, at, "Word")
    show_reply(tree, tvb, at + 16)
    tree:add(f.func, tvb(at + 25, 1))
    tree:add(f.operand, tvb(at + 26, 8))
    tree:add(f.operand, tvb(at + 34, 8))
    local number = tvb(at + 25, 1):uint()
    local is_width = a.mask == 0xff or a.mask == 0x0f or a.mask == 0xf0
    local has_unused = number == 0 and not is_zero(tvb, at + 26, 8)
        or number ~= 7 and not is_zero(tvb, at + 34, 8)
    return a.is_good and is_width and functions[number] ~= nil and not has_unused,
        string.format("%s slot %d word %d", functions[number] or "?", a.slot, a.word)
end

show[4] = function(tree, tvb, at)
    show_reply(tree, tvb, at)
    local reason = tvb(at + 9, 1):uint()
    if reason == 0 then
        tree:add(f.old, tvb(at + 10, 8))
        return true, "slot " .. tvb(at, 2):uint()
    end
    tree:add(f.reason, tvb(at + 9, 1))
    return reasons[reason] ~= nil and is_zero(tvb, at + 10, 8), reasons[reason]
end

show[5] = function(tree, tvb, at)
    tree:add(f.from_port, tvb(at, 4))
    tree:add(f.to_port, tvb(at + 4, 4))
    tree:add(f.message, tvb(at + 8, 1))
    tree:add(f.reason, tvb(at + 9, 1))
    tree:add(f.number, tvb(at + 12, 4))
    tree:add(f.from_session, tvb(at + 16, 8))
    tree:add(f.to_session, tvb(at + 24, 8))
    tree:add(f.body, tvb(at + 32, 40))
    -- What a message may hold is the endpoints' to say; the link carries it.
    local kind = messages[tvb(at + 8, 1):uint()] or "?"
    return true, string.format("%s %d to %d", kind, tvb(at, 4):uint(), tvb(at + 4, 4):uint())
end

show[6] = function(tree, tvb, at)
    local a = show_inner(tree, tvb, at, "Refused")
    tree:add(f.reason, tvb(at + 16, 1))
    local reason = reasons[tvb(at + 16, 1):uint()]
    return a.is_good and reason ~= nil, string.format("slot %d word %d: %s", a.slot, a.word, reason or "?")
end

show[7] = function(tree, tvb, at)
    tree:add(f.number, tvb(at, 4))
    return true, tostring(tvb(at, 4):uint())
end
show[8] = show[7]

-- The key itself is not shown.
show[9] = function(tree, tvb, at)
    local a = show_inner(tree, tvb, at, "Group")
    tree:add(f.group_tag, tvb(at + 16, 8))
    tree:add(f.group_ack_tag, tvb(at + 24, 8))
    tree:add(f.group_seq, tvb(at + 32, 4))
    tree:add(f.group_key, tvb(at + 36, 4))
    local has_key = tvb(at + 36, 4):uint() > 0
    return a.is_good and (has_key or is_zero(tvb, at + 40, 32)),
        string.format("host %d slot %d from %d", a.host, a.slot, tvb(at + 32, 4):uint())
end

show[10] = function(tree, tvb, at)
    tree:add(f.group_tag, tvb(at, 8))
    tree:add(f.group_seq, tvb(at + 8, 4))
    return true, "from " .. tvb(at + 8, 4):uint()
end

show[11] = function(tree, tvb, at)
    tree:add(f.group_tag, tvb(at, 8))
    return true, ""
end

-- One packet of a frame. Gives what is wrong with it, and what to say of it.
local function show_packet(tree, tvb, a, words, at, len)
    local item = tree:add(tvb(at, len), packets[a.kind])
    if a.kind ~= 1 then
        item:add(f.data, tvb(at, len))
        local target = string.format("slot %d word %d", a.slot, a.word)
        return nil, string.format("%s %s +%d", packets[a.kind], target, a.mask == 0xff and words * 8 or len)
    end
    local name = commands[a.slot]
    item:set_text(name or "unknown command")
    if not name then return "unsupported", "unknown command" end
    if len ~= lengths[a.slot] then return "malformed", name end
    local is_good, said = show[a.slot](item, tvb, at)
    return not is_good and "malformed" or nil, name .. " " .. (said or "")
end

-- The table, then the packets. A command has no key.
local function show_data(tree, tvb, entries, payload_len)
    local at, said, wrong = HEADER_LEN + entries * ENTRY_LEN, {}, nil
    local sum, list = 0, {}
    for n = 0, entries - 1 do
        local place = HEADER_LEN + n * ENTRY_LEN
        local a, words = read_address(tvb, place), tvb(place + ADDRESS_LEN, 2):uint()
        local item = tree:add(tvb(place, ENTRY_LEN), "Packet " .. n + 1)
        show_address(item, tvb, place, a)
        item:add(f.words, tvb(place + ADDRESS_LEN, 2))
        local len = entry_len(a, words)
        if not len then return "malformed", "a packet that nobody sends" end
        if a.kind == 1 and not is_zero(tvb, place + 9, 7) then wrong = "malformed" end
        sum = sum + len
        list[#list + 1] = { a, words, len }
    end
    if sum ~= payload_len then return "malformed", "lengths that do not agree" end
    for _, one in ipairs(list) do
        local fault, words = show_packet(tree, tvb, one[1], one[2], at, one[3])
        at = at + one[3]
        wrong = wrong or fault
        said[#said + 1] = words
    end
    return wrong, table.concat(said, ", ")
end

local function show_hello(tree, tvb, len)
    if len ~= 32 then return "malformed", "of a wrong length" end
    local at = HEADER_LEN
    tree:add(f.stage, tvb(at, 1))
    tree:add(f.wants_sums, tvb(at + 1, 1))
    tree:add(f.hello_host, tvb(at + 2, 2))
    tree:add(f.frames, tvb(at + 4, 2))
    tree:add(f.own_tag, tvb(at + 8, 8))
    tree:add(f.incarnation, tvb(at + 16, 8))
    tree:add(f.early, tvb(at + 24, 4))
    local stage = stages[tvb(at, 1):uint()]
    local host = tvb(at + 2, 2):uint()
    local is_good = stage and tvb(at + 1, 1):uint() <= 1 and host <= 0x3fff and tvb(at + 4, 2):uint() > 0
        and is_zero(tvb, at + 6, 2) and is_zero(tvb, at + 28, 4) and not is_zero(tvb, at + 8, 8)
        and (stage ~= "Ask" or is_zero(tvb, 4, 8))
    return not is_good and "malformed" or nil, string.format("%s host %d", stage or "?", host)
end

local function show_bye(tree, tvb, len)
    if len ~= 8 then return "malformed", "of a wrong length" end
    tree:add(f.reason, tvb(HEADER_LEN, 1))
    local reason = reasons[tvb(HEADER_LEN, 1):uint()]
    local is_good = reason and is_zero(tvb, HEADER_LEN + 1, 7)
    return not is_good and "malformed" or nil, reason or "?"
end

local function show_stranger(tree, tvb, len)
    if len ~= 16 then return "malformed", "of a wrong length" end
    tree:add(f.stranger_tag, tvb(HEADER_LEN, 8))
    tree:add(f.incarnation, tvb(HEADER_LEN + 8, 8))
    return nil, ""
end

local function show_ack(tree, tvb, len)
    for at = HEADER_LEN, HEADER_LEN + len - 8, 8 do tree:add(f.sack, tvb(at, 8)) end
    return nil, ""
end

local function show_header(tree, tvb)
    tree:add(f.mark, tvb(0, 2))
    tree:add(f.version, tvb(2, 1))
    tree:add(f.kind, tvb(2, 1))
    local flags = tree:add(f.flags, tvb(3, 1))
    for _, flag in ipairs({ f.sum_flag, f.ask, f.xoff, f.late }) do flags:add(flag, tvb(3, 1)) end
    tree:add(f.tag, tvb(4, 8))
    tree:add(f.seq, tvb(12, 4))
    tree:add(f.ack, tvb(16, 4))
    tree:add(f.sack, tvb(20, 8))
    tree:add(f.credit, tvb(28, 2))
    tree:add(f.marks, tvb(30, 1))
    tree:add(f.entries, tvb(31, 1))
    tree:add(f.payload_len, tvb(32, 2))
    tree:add(f.crc, tvb(34, 4))
    tree:add(f.sum, tvb(38, 2))
end

local function show_nothing(_, _, _)
    return nil, ""
end

local function has_packets(kind)
    return kind == KIND.DATA or kind == KIND.GROUP_DATA
end

-- The checks before anything of the body is believed, in the order of the codec.
local function check(tvb, kind, entries, payload_len)
    local is_data = has_packets(kind)
    local is_good = is_data and entries >= 1 and entries <= MOST_ENTRIES
        or not is_data and entries == 0 and payload_len <= MOST_BODY
    if not is_good then return "malformed", "lengths that nobody sends" end
    local table_end = HEADER_LEN + entries * ENTRY_LEN
    local frame_end = table_end + payload_len
    if frame_end > tvb:reported_len() then return "truncated", "shorter than it says" end
    if frame_end > tvb:captured_len() then return "truncated", "not captured whole" end
    local covered = is_data and table_end or frame_end
    local bytes = tvb:raw(0, 34) .. tvb:raw(HEADER_LEN, covered - HEADER_LEN)
    if crc32c(bytes) ~= tvb(34, 4):uint() then return "checksum", "bad CRC" end
    if tvb(3, 1):uint() > 15 then return "malformed", "unknown flags" end
    if is_data and tvb(3, 1):uint() % 2 == 1 and internet_sum(tvb:raw(38, frame_end - 38)) ~= 0xffff then
        return "checksum", "bad sum"
    end
end

local bodies = {
    [KIND.ACK] = show_ack, [KIND.HELLO] = show_hello, [KIND.BYE] = show_bye, [KIND.STRANGER] = show_stranger,
    [KIND.GROUP_ACK] = show_ack, [KIND.GROUP_PROBE] = show_nothing,
}

local function is_ours(tvb)
    return tvb:captured_len() >= 4 and tvb:raw(0, 2) == "CL"
end

function clan.dissector(tvb, pinfo, root)
    if not is_ours(tvb) then return 0 end
    pinfo.cols.protocol = "CLAN"
    local tree = root:add(clan, tvb())
    local function fault(kind, words)
        tree:add_proto_expert_info(e[kind], words)
        pinfo.cols.info = words .. " [" .. kind .. "]"
        return tvb:captured_len()
    end
    if tvb:captured_len() < HEADER_LEN then return fault("truncated", "shorter than its header") end
    show_header(tree, tvb)
    local kind = tvb(2, 1):uint() % 16
    if rshift(tvb(2, 1):uint(), 4) ~= 1 then return fault("unsupported", "unknown version") end
    if not kinds[kind] then return fault("unsupported", "unknown kind") end
    local entries, payload_len = tvb(31, 1):uint(), tvb(32, 2):uint()
    local wrong, said = check(tvb, kind, entries, payload_len)
    if wrong then return fault(wrong, said) end

    if has_packets(kind) then
        wrong, said = show_data(tree, tvb, entries, payload_len)
    else
        wrong, said = bodies[kind](tree, tvb, payload_len)
    end
    local frame_end = HEADER_LEN + entries * ENTRY_LEN + payload_len
    if tvb:captured_len() > frame_end then tree:add(f.padding, tvb(frame_end)) end
    local info = kinds[kind]
    if has_packets(kind) then info = info .. " " .. tvb(12, 4):uint() end
    if kind == KIND.DATA or kind == KIND.ACK or kind == KIND.GROUP_ACK then info = info .. " ack " .. tvb(16, 4):uint() end
    if said ~= "" then info = info .. ": " .. said end
    if wrong then return fault(wrong, info) end
    pinfo.cols.info = info
    tree:append_text(", " .. info)
    return tvb:captured_len()
end

-- Others experiment with this ethertype, too: what is not ours goes to whoever
-- had it before.
local ethertypes = DissectorTable.get("ethertype")
local before = ethertypes:get_dissector(ETHERTYPE)
local shared = Proto("clan_or_other", "CLAN, or another experiment")
function shared.dissector(tvb, pinfo, root)
    if is_ours(tvb) then return clan.dissector(tvb, pinfo, root) end
    return before and before:call(tvb, pinfo, root) or 0
end
ethertypes:add(ETHERTYPE, shared)

local ports, current = DissectorTable.get("udp.port"), 0
local function listen()
    if current > 0 then ports:remove(current, clan) end
    current = clan.prefs.udp_port
    if current > 0 then ports:add(current, clan) end
end
function clan.prefs_changed() listen() end
listen()
