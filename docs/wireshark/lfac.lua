-- The admission control of speculative defragmentation in Wireshark and tshark:
-- Fast_Req, Fast_Ack and Fast_NAck.
--
-- The layout is that of docs/spec/spec-defrag.md. It needs nothing but the Lua that
-- Wireshark brings (5.2 to 5.4).

local lfac = Proto("lfac", "Landfall Admission Control")

local HEADER_LEN = 32
local ETHERTYPE = 0x88b5
local NOWHERE = 0xffff

local SEALED_HEADER_LEN = 8
local SEALED_MOST = 224

local KIND = { FAST_REQ = 1, FAST_ACK = 2, FAST_NACK = 3, REFRESH = 4, RELEASE = 5, SEALED = 6 }
local kinds = { "Fast_Req", "Fast_Ack", "Fast_NAck", "Refresh", "Release" }

local f = {
    magic = ProtoField.string("lfac.magic", "Magic"),
    version = ProtoField.uint8("lfac.version", "Version"),
    kind = ProtoField.uint8("lfac.kind", "Kind", base.DEC, { "Fast_Req", "Fast_Ack", "Fast_NAck", "Refresh", "Release", "Sealed" }),
    position = ProtoField.uint16("lfac.position", "Position"),
    nonce = ProtoField.uint64("lfac.nonce", "Nonce", base.HEX),
    serial = ProtoField.uint32("lfac.serial", "Serial"),
    time = ProtoField.uint32("lfac.time", "Time, microseconds"),
    lease = ProtoField.uint64("lfac.lease", "Lease", base.HEX),
    ticket = ProtoField.uint64("lfac.ticket", "Ticket", base.HEX),
    len = ProtoField.uint16("lfac.len", "Length of the unit"),
    unit = ProtoField.bytes("lfac.unit", "Sealed unit"),
    padding = ProtoField.bytes("lfac.padding", "Padding"),
}
lfac.fields = f

local function problem(name, words)
    return ProtoExpert.new("lfac.expert." .. name, words, expert.group.MALFORMED, expert.severity.ERROR)
end
local e = {
    truncated = problem("truncated", "Truncated"),
    unsupported = problem("unsupported", "Unknown version or kind"),
    malformed = problem("malformed", "A field holds what it may not"),
}
lfac.experts = e

-- What the frame says in a few words, and what is wrong with it, if anything.
local function read(p)
    local kind, lease = p.kind, p.lease
    if kind == KIND.FAST_REQ then
        return lease == 0 and "" or "with ticket"
    elseif kind == KIND.FAST_ACK then
        return string.format("for %d us", p.time), p.time == 0 or lease == 0
    elseif kind == KIND.FAST_NACK then
        if p.position == NOWHERE then
            if p.time > 0 then return string.format("no place, ask again after %d us", p.time) end
            return lease == 0 and "turn over" or "show your ticket"
        end
        local malformed = lease == 0
        if p.time == 0 then return "invitation", malformed end
        return string.format("place %d, ask again after %d us", p.position, p.time), malformed
    end
    return "", lease == 0
end

-- What a kind does not use is zero.
local function uses_too_much(p)
    if p.kind == KIND.FAST_NACK then return false end
    if p.position ~= 0 then return true end
    return p.kind ~= KIND.FAST_ACK and p.time ~= 0
end


-- The addresses of the frame, where it was captured from Ethernet: stations, not groups.
local addresses = { Field.new("eth.dst"), Field.new("eth.src") }

local function has_bad_address()
    for _, field in ipairs(addresses) do
        local address = field()
        if address then
            local bytes = address.range:bytes()
            local is_group = bytes:get_index(0) % 2 == 1
            if is_group or bytes:tohex() == "000000000000" then return true end
        end
    end
    return false
end

local function add_fields(tree, tvb, kind)
    tree:add(f.magic, tvb(0, 4))
    tree:add(f.version, tvb(4, 1))
    tree:add(f.kind, tvb(5, 1))
    local position = tree:add(f.position, tvb(6, 2))
    if kind == KIND.FAST_NACK and tvb(6, 2):uint() == NOWHERE then
        position:append_text(" (no place in the queue)")
    end
    tree:add(f.nonce, tvb(8, 8))
    tree:add(f.serial, tvb(16, 4))
    tree:add(f.time, tvb(20, 4))
    local is_ticket = kind == KIND.FAST_REQ or kind == KIND.FAST_NACK
    tree:add(is_ticket and f.ticket or f.lease, tvb(24, 8))
    if tvb:captured_len() > HEADER_LEN then tree:add(f.padding, tvb(HEADER_LEN)) end
end

-- A frame around a unit that is encrypted. Gives what is wrong with it, if anything.
local function add_sealed(tree, tvb, pinfo)
    local len = tvb(6, 2):uint()
    tree:add(f.magic, tvb(0, 4))
    tree:add(f.version, tvb(4, 1))
    tree:add(f.kind, tvb(5, 1))
    tree:add(f.len, tvb(6, 2))
    local info = "Sealed, " .. len .. " bytes"
    pinfo.cols.info = info
    tree:append_text(", " .. info)
    if len == 0 or len > SEALED_MOST or has_bad_address() then
        return "malformed", info .. " [a field holds what it may not]"
    end
    local stop = SEALED_HEADER_LEN + len
    if tvb:captured_len() < stop then return "truncated", info .. " [shorter than that]" end
    tree:add(f.unit, tvb(SEALED_HEADER_LEN, len))
    if tvb:captured_len() > stop then tree:add(f.padding, tvb(stop)) end
end

-- Others experiment with this ethertype too: what is not ours goes to whoever had it before.
local ethertypes = DissectorTable.get("ethertype")
local before = ethertypes:get_dissector(ETHERTYPE)

function lfac.dissector(tvb, pinfo, root)
    if tvb:captured_len() < 4 or tvb:raw(0, 4) ~= "LFAC" then
        return before and before:call(tvb, pinfo, root) or 0
    end
    pinfo.cols.protocol = "LFAC"
    local tree = root:add(lfac, tvb())
    local function fault(kind, words)
        tree:add_proto_expert_info(e[kind], words)
        pinfo.cols.info = words
        return tvb:captured_len()
    end
    local is_headed = tvb:captured_len() >= SEALED_HEADER_LEN and tvb(4, 1):uint() == 1
    if is_headed and tvb(5, 1):uint() == KIND.SEALED then
        local what, words = add_sealed(tree, tvb, pinfo)
        return what and fault(what, words) or tvb:captured_len()
    end
    if tvb:captured_len() < HEADER_LEN then return fault("truncated", "shorter than its header") end

    local kind = tvb(5, 1):uint()
    add_fields(tree, tvb, kind)
    if tvb(4, 1):uint() ~= 1 then return fault("unsupported", "unknown version") end
    if not kinds[kind] then return fault("unsupported", "unknown kind") end

    local p = {
        kind = kind,
        position = tvb(6, 2):uint(),
        time = tvb(20, 4):uint(),
        lease = tvb(24, 8):uint64() == UInt64(0) and 0 or 1,
    }
    local words, malformed = read(p)
    local info = kinds[kind] .. " " .. tvb(16, 4):uint() .. (words ~= "" and " " .. words or "")
    pinfo.cols.info = info
    tree:append_text(", " .. info)
    if malformed or uses_too_much(p) or tvb(8, 8):uint64() == UInt64(0) or has_bad_address() then
        return fault("malformed", info .. " [a field holds what it may not]")
    end
    return tvb:captured_len()
end

ethertypes:add(ETHERTYPE, lfac)
