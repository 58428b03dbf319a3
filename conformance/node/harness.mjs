// What the Node suite needs beside the SDK: a node of its own, checks, waiting for a condition.

import { execFile, spawn } from 'node:child_process'
import { existsSync, mkdtempSync, openSync, closeSync, readFileSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'

const START_MS = 20_000
const STOP_MS = 30_000
const TEST_MS = 90_000
// Whether the SDK connects with couchbases://.
const OVER_TLS = process.env.SETTEE_OVER_TLS === '1'

// One `settee serve` with a data directory of its own, on free ports.
export class Node {
  constructor() {
    this.home = mkdtempSync(join(tmpdir(), 'settee-conformance-'))
    this.portsFile = join(this.home, 'ports.json')
    this.log = join(this.home, 'log')
    this.ports = { kv: 0, http: 0 }
  }

  // Waits until the node serves; later starts take the ports of the first.
  async start() {
    rmSync(this.portsFile, { force: true })
    const log = openSync(this.log, 'a')
    this.process = spawn(
      process.env.SETTEE_BIN,
      [
        'serve',
        ...['--data-dir', join(this.home, 'data')],
        ...['--kv-port', String(this.ports.kv)],
        ...['--http-port', String(this.ports.http)],
        ...['--ports-file', this.portsFile],
        ...(OVER_TLS ? ['--kv-tls-port', String(this.ports.kv_tls ?? 0)] : []),
        ...(OVER_TLS ? ['--https-port', String(this.ports.https ?? 0)] : []),
      ],
      { stdio: ['ignore', log, log] }
    )
    closeSync(log)
    const child = this.process
    process.once('exit', () => child.kill('SIGKILL'))
    this.ended = new Promise((resolve) => {
      child.once('exit', (code, signal) => resolve({ code, signal }))
      child.once('error', (error) => resolve({ code: error.message }))
    })
    let outcome = null
    this.ended.then((how) => (outcome = how))
    const deadline = Date.now() + START_MS
    while (!existsSync(this.portsFile)) {
      if (outcome) throw new Error(`the node ended with ${outcome.code}:\n${this.tail()}`)
      if (Date.now() > deadline) throw new Error(`the node does not serve:\n${this.tail()}`)
      await pause(5)
    }
    this.ports = JSON.parse(readFileSync(this.portsFile, 'utf8'))
    return this
  }

  // Where the SDK connects, and what it trusts there.
  get place() {
    if (!OVER_TLS) return { address: `couchbase://127.0.0.1:${this.ports.kv}` }
    const trustStorePath = join(this.home, 'data', 'tls', 'ca.pem')
    return { address: `couchbases://127.0.0.1:${this.ports.kv_tls}`, security: { trustStorePath } }
  }

  // Whether every vBucket says that its newest change is on disk.
  async hasPersistedAll() {
    const at = `couchbase://Administrator:password@127.0.0.1:${this.ports.kv}/default`
    const command = ['stat', 'vbucket-seqno', '--json', '--connect', at]
    const { stdout } = await promisify(execFile)(process.env.SETTEE_BIN, command, { maxBuffer: 2 ** 24 })
    const stats = JSON.parse(stdout)
    const seqnos = Object.entries(stats).filter(([key]) => /^vb_\d+:high_seqno$/.test(key))
    if (seqnos.length === 0) throw new Error('no vBucket tells its high seqno')
    const last = (key) => stats[key.replace(':high_seqno', ':last_persisted_seqno')]
    return seqnos.every(([key, seqno]) => last(key) === seqno)
  }

  // SIGTERM; the node must drain, flush and end with 0.
  async stop() {
    this.process.kill('SIGTERM')
    const late = AbortSignal.timeout(STOP_MS)
    const how = await Promise.race([this.ended, aborted(late)])
    if (how === 'late') {
      await this.kill()
      throw new Error(`the node ignores SIGTERM:\n${this.tail()}`)
    }
    equal(how.code, 0, 'exit code after SIGTERM')
  }

  // SIGKILL: nothing is drained.
  async kill() {
    this.process.kill('SIGKILL')
    await this.ended
  }

  tail() {
    if (!existsSync(this.log)) return ''
    return readFileSync(this.log, 'utf8').trimEnd().split('\n').slice(-30).join('\n')
  }

  // Ends the node, which must still be able to end by itself, and removes what it wrote.
  async close() {
    if (this.process?.exitCode === null && this.process.signalCode === null) await this.stop()
    rmSync(this.home, { recursive: true, force: true })
  }
}

function aborted(signal) {
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve('late')))
}

// Makes the node active for the vBucket, with these chains of nodes.
export async function heldBy(port, vbucket, chains) {
  const frame = (opcode, key, value, { vb = 0, extras = '', datatype = 0 } = {}) => {
    const body = Buffer.concat([extras, key, value].map((part) => Buffer.from(part)))
    const head = Buffer.alloc(24)
    head.set([0x80, opcode])
    head.writeUInt16BE(key.length, 2)
    head.set([extras.length, datatype], 4)
    head.writeUInt16BE(vb, 6)
    head.writeUInt32BE(body.length, 8)
    return Buffer.concat([head, body])
  }
  const topology = `{"topology":${chains}}`
  const socket = connect(port, '127.0.0.1')
  // The JSON datatype is a feature.
  socket.write(frame(0x1f, 'settee-conformance', '\x00\x0b'))
  socket.write(frame(0x21, 'PLAIN', '\0Administrator\0password'))
  socket.write(frame(0x89, 'default', ''))
  // State 1 is active; datatype 1 is JSON.
  socket.end(frame(0x3d, '', topology, { vb: vbucket, extras: '\x01', datatype: 1 }))
  let answers = Buffer.alloc(0)
  for await (const bytes of socket) answers = Buffer.concat([answers, bytes])
  const statuses = []
  for (let at = 0; at + 24 <= answers.length; at += 24 + answers.readUInt32BE(at + 8)) {
    statuses.push(answers.readUInt16BE(at + 6))
  }
  equal(statuses, [0, 0, 0, 0], 'statuses of HELLO, login, bucket and vBucket')
}

export function equal(got, expected, what = 'value') {
  const [a, b] = [got, expected].map((value) => JSON.stringify(value))
  if (a !== b) throw new Error(`${what}: expected ${cut(b)}, got ${cut(a)}`)
}

function cut(text) {
  return String(text).slice(0, 200)
}

// Runs `call`, which must fail with one of `kinds`.
export async function refused(call, ...kinds) {
  let value
  try {
    value = await call()
  } catch (error) {
    if (kinds.some((kind) => error instanceof kind)) return error
    throw new Error(`expected ${kinds.map((kind) => kind.name)}, got ${error.name}: ${error.message}`)
  }
  throw new Error(`expected ${kinds.map((kind) => kind.name)}, got ${cut(JSON.stringify(value))}`)
}

// Polls until `probe` returns something true; an exception counts as not yet.
export async function eventually(what, probe, withinMs = 15_000) {
  const deadline = Date.now() + withinMs
  for (;;) {
    let last
    try {
      last = await probe()
      if (last) return last
    } catch (error) {
      last = error
    }
    if (Date.now() > deadline) throw new Error(`${what}: not within ${withinMs} ms; last seen: ${last}`)
    await pause(20)
  }
}

// Runs the tests whose name holds `filter` and prints the closing line.
export async function runAll(name, tests, world, filter = '') {
  let passed = 0
  let failed = 0
  for (const [title, run] of Object.entries(tests).filter(([title]) => title.includes(filter))) {
    const started = Date.now()
    const hung = setTimeout(() => {
      console.log(`FAIL ${name}: ${title} hangs`)
      process.exit(1)
    }, TEST_MS)
    try {
      await run(world)
      passed += 1
      console.log(`ok   ${name}: ${title} (${Date.now() - started} ms)`)
    } catch (error) {
      failed += 1
      console.log(`FAIL ${name}: ${title}: ${error.stack ?? error}`)
    }
    clearTimeout(hung)
  }
  if (passed + failed === 0) failed += 1
  return { passed, failed }
}
