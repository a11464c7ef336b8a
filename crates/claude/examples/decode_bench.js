// The baseline for decode_bench.rs: reads a file in chunks and parses each line.
'use strict';
const fs = require('node:fs');

// CPU time of this thread, which is independent of other programs; wall-clock time if it is not available.
function spent() {
  try {
    return Number(fs.readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')[0]) / 1e9;
  } catch {
    return Number(process.hrtime.bigint()) / 1e9;
  }
}

const file = fs.openSync(process.argv[2], 'r');
const piece = Buffer.alloc(1 << 20);
const start = process.hrtime.bigint();
const spentBefore = spent();
let rest = Buffer.alloc(0);
let lines = 0;
let kinds = 0;
for (;;) {
  const size = fs.readSync(file, piece, 0, piece.length, null);
  if (size === 0) break;
  const data = rest.length > 0 ? Buffer.concat([rest, piece.subarray(0, size)]) : piece.subarray(0, size);
  let from = 0;
  for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, from)) {
    const frame = JSON.parse(data.toString('utf8', from, end));
    kinds += frame.type.length;
    lines += 1;
    from = end + 1;
  }
  rest = Buffer.from(data.subarray(from));
}
const seconds = Number(process.hrtime.bigint() - start) / 1e9;
console.log(JSON.stringify({ seconds, thread_seconds: spent() - spentBefore, lines, kinds }));
