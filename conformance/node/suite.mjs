// The Couchbase Node SDK, unmodified, against a node. Run in the folder in which it is installed.

import { randomBytes } from 'node:crypto'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import process from 'node:process'

import { follow } from './follow.mjs'
import { Node, equal, eventually, heldBy, refused, runAll } from './harness.mjs'

const couchbase = createRequire(join(process.cwd(), 'package.json'))('couchbase')

const MIB = 1024 * 1024
const ACTIVE = { durabilityPersistTo: 1 }
const RAW = { transcoder: new couchbase.RawBinaryTranscoder() }
// Characters of one, two, three and four bytes each in UTF-8.
const UNICODE_KEY = 'k\u00fcche-\u6f22\u5b57-\u{1f6cb}'

function connect(node, password = 'password', username = 'Administrator') {
  const { address, ...security } = node.place
  return couchbase.connect(address, {
    ...security,
    username,
    password,
    timeouts: { kvTimeout: 10_000, bootstrapTimeout: 4_000, connectTimeout: 4_000 },
  })
}

async function gone(c, key) {
  const missing = () => c.get(key).then(() => false, (e) => e instanceof couchbase.DocumentNotFoundError)
  await eventually(`${key} expires`, missing, 7_000)
  equal((await c.exists(key)).exists, false, `exists ${key}`)
}

async function holds(c, key, expected) {
  equal((await c.get(key)).content, expected, key)
}

// Documents for a transaction, and what it does to them.
async function staged(c) {
  await c.upsert('txn-replaced', { n: 1 })
  await c.upsert('txn-removed', { n: 2 })
  await c.upsert('txn-inserted', {})
  await c.remove('txn-inserted')
  return async (attempt) => {
    await attempt.replace(await attempt.get(c, 'txn-replaced'), { n: 11 })
    await attempt.remove(await attempt.get(c, 'txn-removed'))
    await attempt.insert(c, 'txn-inserted', { n: 12 })
  }
}

const tests = {
  async waits_until_ready({ cluster, bucket }) {
    const services = { serviceTypes: [couchbase.ServiceType.KeyValue] }
    await cluster.waitUntilReady(10_000, services)
    await bucket.waitUntilReady(10_000, services)
  },

  async writes_and_reads({ c }) {
    const written = await c.upsert('crud', { a: 1 })
    const read = await c.get('crud')
    equal(read.content, { a: 1 })
    equal(String(read.cas), String(written.cas), 'CAS')
    if (!written.token) throw new Error('a write has no mutation token')
    await c.replace('crud', { a: 2 })
    await holds(c, 'crud', { a: 2 })
    await c.remove('crud')
    await refused(() => c.get('crud'), couchbase.DocumentNotFoundError)
  },

  async commits_transactions({ cluster, c }) {
    const changed = await staged(c)
    await cluster.transactions().run(async (attempt) => {
      await changed(attempt)
      await holds(c, 'txn-replaced', { n: 1 })
      await refused(() => c.get('txn-inserted'), couchbase.DocumentNotFoundError)
    })
    await holds(c, 'txn-replaced', { n: 11 })
    await holds(c, 'txn-inserted', { n: 12 })
    await refused(() => c.get('txn-removed'), couchbase.DocumentNotFoundError)
  },

  async rolls_transactions_back({ cluster, c }) {
    const changed = await staged(c)
    const givenUp = async (attempt) => {
      await changed(attempt)
      throw new Error('given up')
    }
    await refused(() => cluster.transactions().run(givenUp), couchbase.TransactionFailedError)
    await holds(c, 'txn-replaced', { n: 1 })
    await holds(c, 'txn-removed', { n: 2 })
    await refused(() => c.get('txn-inserted'), couchbase.DocumentNotFoundError)
  },

  async manages_scopes_and_collections({ bucket, c }) {
    const manager = bucket.collections()
    await manager.createScope('node')
    await refused(() => manager.createScope('node'), couchbase.ScopeExistsError)
    await manager.createCollection('a', 'node')
    await refused(() => manager.createCollection('a', 'node'), couchbase.CollectionExistsError)
    const scope = (await manager.getAllScopes()).find((one) => one.name === 'node')
    equal(scope.collections.map((one) => one.name), ['a'], 'collections of the scope')
    const a = bucket.scope('node').collection('a')
    await a.upsert('same', { in: 'a' })
    await c.upsert('same', { in: 'default' })
    await holds(a, 'same', { in: 'a' })
    await holds(c, 'same', { in: 'default' })
    await manager.dropCollection('a', 'node')
    await refused(() => manager.dropCollection('a', 'node'), couchbase.CollectionNotFoundError)
    await manager.createCollection('a', 'node')
    await refused(() => bucket.scope('node').collection('a').get('same'), couchbase.DocumentNotFoundError)
    await manager.dropScope('node')
    await refused(() => manager.dropScope('node'), couchbase.ScopeNotFoundError)
  },

  async users_may_do_what_their_roles_say({ node, cluster, bucket }) {
    const users = cluster.users()
    const collections = bucket.collections()
    await collections.createScope('office')
    for (const name of ['open', 'closed']) {
      await collections.createCollection(name, 'office')
      await bucket.scope('office').collection(name).upsert('k', { in: name })
    }
    const place = { bucket: 'default', scope: 'office' }
    const reader = { name: 'data_reader', collection: 'open', ...place }
    await users.upsertGroup({ name: 'readers', description: 'They read.', roles: [reader] })
    equal((await users.getGroup('readers')).roles[0].collection, 'open', 'role of the group')
    if (!(await users.getRoles()).some((role) => role.name === 'data_reader')) throw new Error('no such role')
    await users.upsertUser({ username: 'ana', password: 'secret', displayName: 'Ana', groups: ['readers'], roles: [] })
    const ana = await users.getUser('ana')
    equal([ana.displayName, ana.groups], ['Ana', ['readers']], 'user')
    equal(ana.effectiveRoles.map((role) => role.name), ['data_reader'], 'roles by the group')

    const other = await connect(node, 'secret', 'ana')
    const office = other.bucket('default').scope('office')
    const c = office.collection('open')
    await holds(c, 'k', { in: 'open' })
    await refused(() => c.upsert('k', {}), couchbase.AuthenticationFailureError)
    // The SDK asks for a collection that there is not until time is out.
    const unknown = [couchbase.UnambiguousTimeoutError, couchbase.CollectionNotFoundError]
    await refused(() => office.collection('closed').get('k', { timeout: 500 }), ...unknown)

    const roles = [{ name: 'data_writer', collection: 'open', ...place }, { name: 'data_reader', ...place }]
    await users.upsertUser({ username: 'ana', groups: ['readers'], roles })
    await c.upsert('k', { by: 'ana' })
    await holds(office.collection('closed'), 'k', { in: 'closed' })
    await other.users().changePassword('sesame')
    await refused(() => connect(node, 'secret', 'ana'), couchbase.AuthenticationFailureError)
    await users.dropGroup('readers')
    await refused(() => users.getGroup('readers'), couchbase.GroupNotFoundError)
    await users.dropUser('ana')
    await refused(() => users.getUser('ana'), couchbase.UserNotFoundError)
    await refused(() => c.get('k', { timeout: 500 }), couchbase.AuthenticationFailureError, ...unknown)
    await other.close()
    await collections.dropScope('office')
  },

  async inserts_once({ c }) {
    await c.insert('insert', { n: 1 })
    await refused(() => c.insert('insert', { n: 2 }), couchbase.DocumentExistsError)
    await holds(c, 'insert', { n: 1 })
  },

  async refuses_what_is_missing({ c }) {
    const missing = couchbase.DocumentNotFoundError
    await refused(() => c.replace('missing', {}), missing)
    await refused(() => c.remove('missing'), missing)
    await refused(() => c.touch('missing', 5), missing)
    await refused(() => c.getAndLock('missing', 5), missing)
    await refused(() => c.binary().append('missing', 'x'), missing)
  },

  async tells_a_cas_conflict({ c }) {
    const { cas: old } = await c.upsert('cas', { n: 1 })
    const { cas: fresh } = await c.upsert('cas', { n: 2 })
    await refused(() => c.replace('cas', { n: 3 }, { cas: old }), couchbase.CasMismatchError)
    await refused(() => c.remove('cas', { cas: old }), couchbase.CasMismatchError)
    await c.replace('cas', { n: 3 }, { cas: fresh })
    await holds(c, 'cas', { n: 3 })
  },

  async expires_documents({ c }) {
    await c.upsert('expiry', {}, { expiry: 1 })
    await c.upsert('touched', {})
    await c.touch('touched', 1)
    await c.upsert('got-and-touched', { n: 1 })
    equal((await c.getAndTouch('got-and-touched', 1)).content, { n: 1 })
    await c.upsert('saved', { n: 1 }, { expiry: 1 })
    await c.touch('saved', 0)
    for (const key of ['expiry', 'touched', 'got-and-touched']) await gone(c, key)
    await holds(c, 'saved', { n: 1 })
    await c.insert('expiry', {})
  },

  async preserves_the_expiry({ c }) {
    await c.upsert('preserve', {}, { expiry: 2 })
    await c.upsert('preserve', { n: 2 }, { preserveExpiry: true })
    await holds(c, 'preserve', { n: 2 })
    await gone(c, 'preserve')
  },

  async locks_documents({ c }) {
    const blocked = [couchbase.DocumentLockedError, couchbase.TimeoutError]
    await c.upsert('lock', { n: 1 })
    const locked = await c.getAndLock('lock', 10)
    await refused(() => c.upsert('lock', { n: 2 }, { timeout: 300 }), ...blocked)
    await refused(() => c.getAndLock('lock', 1, { timeout: 300 }), ...blocked)
    await holds(c, 'lock', { n: 1 })
    await c.unlock('lock', locked.cas)
    await c.upsert('lock', { n: 2 })
    const again = await c.getAndLock('lock', 10)
    await c.replace('lock', { n: 3 }, { cas: again.cas })
    await c.upsert('lock', { n: 4 })
  },

  async counts({ c }) {
    const binary = c.binary()
    equal((await binary.increment('counter', 1, { initial: 10 })).value, 10)
    equal((await binary.increment('counter', 5)).value, 15)
    equal((await binary.decrement('counter', 6)).value, 9)
    equal((await binary.decrement('counter', 100)).value, 0, 'a counter does not fall below zero')
    await c.upsert('no-counter', {})
    await refused(() => binary.increment('no-counter', 1), couchbase.DeltaInvalidError)
  },

  async appends_and_prepends({ c }) {
    await c.upsert('append', Buffer.from('middle'), RAW)
    await c.binary().append('append', Buffer.from(' end'))
    await c.binary().prepend('append', Buffer.from('start '))
    equal((await c.get('append', RAW)).content.toString(), 'start middle end')
  },

  async tells_existence({ c }) {
    equal((await c.exists('existence')).exists, false, 'before')
    await c.upsert('existence', {})
    equal((await c.exists('existence')).exists, true, 'there')
    await c.remove('existence')
    equal((await c.exists('existence')).exists, false, 'a tombstone')
  },

  async waits_for_persistence({ c }) {
    await c.upsert('durable', {}, ACTIVE)
    await c.remove('durable', ACTIVE)
  },

  async writes_durably({ node, c }) {
    const { Majority, MajorityAndPersistOnMaster, PersistToMajority } = couchbase.DurabilityLevel
    for (const durabilityLevel of [Majority, MajorityAndPersistOnMaster, PersistToMajority]) {
      const { cas } = await c.upsert('sync', { n: 1 }, { durabilityLevel })
      await c.replace('sync', { n: 2 }, { cas, durabilityLevel })
      const stale = () => c.replace('sync', { n: 3 }, { cas, durabilityLevel })
      await refused(stale, couchbase.CasMismatchError)
      await holds(c, 'sync', { n: 2 })
      await c.remove('sync', { durabilityLevel })
    }
    const written = await c.upsert('sync', { n: 'old' })
    const vbucket = Number(JSON.parse(JSON.stringify(written.token)).partition_id)
    const durably = { durabilityLevel: Majority, timeout: 2_000 }
    await heldBy(node.ports.kv, vbucket, '[["here",null]]')
    const write = () => c.upsert('sync', { n: 'new' }, durably)
    await refused(write, couchbase.DurabilityImpossibleError)
    await heldBy(node.ports.kv, vbucket, '[["here","there"]]')
    await refused(write, couchbase.DurabilityAmbiguousError, couchbase.AmbiguousTimeoutError)
    await eventually('the write is given up', () => c.upsert('sync', { n: 'later' }, { timeout: 500 }))
    await heldBy(node.ports.kv, vbucket, '[["here"]]')
    await write()
    await holds(c, 'sync', { n: 'new' })
  },

  async keeps_large_documents({ c }) {
    for (const value of [randomBytes(MIB), randomBytes(19 * MIB), Buffer.alloc(19 * MIB)]) {
      await c.upsert('large', value, RAW)
      const { content } = await c.get('large', RAW)
      if (!value.equals(content)) throw new Error(`${value.length} bytes came back changed`)
    }
  },

  async refuses_what_is_too_large({ c }) {
    await refused(() => c.upsert('huge', randomBytes(21 * MIB), RAW), couchbase.ValueTooLargeError)
    await c.upsert('small', {})
  },

  async takes_long_and_unicode_keys({ c }) {
    for (const key of ['k'.repeat(250), UNICODE_KEY, 'with space/and:sign\x7f']) {
      await c.upsert(key, { key })
      await holds(c, key, { key })
    }
    await refused(() => c.upsert('k'.repeat(251), {}), couchbase.CouchbaseError)
  },

  async keeps_json_and_binary_apart({ c }) {
    for (const value of ['caf\u00e9', [1, null, 'x'], 1.5, null, true]) {
      await c.upsert('json', value)
      await holds(c, 'json', value)
    }
    const everyByte = Buffer.from(Array.from({ length: 256 }, (_, n) => n))
    await c.upsert('bytes', everyByte, RAW)
    equal((await c.get('bytes', RAW)).content.toString('hex'), everyByte.toString('hex'))
  },

  async refuses_a_wrong_password({ node }) {
    await refused(() => connect(node, 'wrong'), couchbase.AuthenticationFailureError)
  },

  async refuses_a_wrong_bucket({ node }) {
    const other = await connect(node)
    try {
      const get = () => other.bucket('no-such-bucket').defaultCollection().get('x', { timeout: 3_000 })
      await refused(get, couchbase.BucketNotFoundError, couchbase.TimeoutError)
    } finally {
      await other.close()
    }
  },

  async pings_and_diagnoses({ bucket, cluster }) {
    const pinged = await bucket.ping({ serviceTypes: [couchbase.ServiceType.KeyValue] })
    const endpoints = pinged.services[couchbase.ServiceType.KeyValue] ?? []
    if (endpoints.length === 0) throw new Error('no endpoint answered')
    for (const endpoint of endpoints) equal(endpoint.state, couchbase.PingState.Ok, 'endpoint')
    const { services } = await cluster.diagnostics()
    if (!services.kv?.length) throw new Error('diagnostics name no connection')
  },

  async tells_about_the_bucket_over_http({ cluster }) {
    equal((await cluster.buckets().getBucket('default')).name, 'default')
  },

  async finds_all_after_a_restart(world) {
    await backAfter(world, 'restart', () => world.node.stop())
  },

  async finds_all_after_a_kill(world) {
    await backAfter(world, 'kill', () => world.node.kill())
  },
}

// Ends the node while the client stays, and reads everything through the same client.
async function backAfter({ node, c }, name, end) {
  const documents = new Map()
  for (let n = 0; n < 50; n += 1) documents.set(`${name}-${n}`, { n, text: 'x'.repeat(n) })
  for (const [key, value] of documents) await c.upsert(key, value)
  await c.remove(`${name}-0`)
  // Not with `durabilityPersistTo`: the SDK asks once and takes any answer.
  await eventually('everything is persisted', () => node.hasPersistedAll())
  await end()
  await node.start()
  await eventually('the client is back', () => c.get(`${name}-1`), 30_000)
  for (const [key, value] of [...documents].slice(1)) await holds(c, key, value)
  await refused(() => c.get(`${name}-0`), couchbase.DocumentNotFoundError)
  await c.upsert(`${name}-0`, {})
  await holds(c, UNICODE_KEY, { key: UNICODE_KEY })
}

async function main() {
  const node = new Node()
  let outcome = { passed: 0, failed: 1 }
  try {
    await node.start()
    const cluster = await connect(node)
    const bucket = cluster.bucket('default')
    const world = { node, cluster, bucket, c: bucket.defaultCollection() }
    outcome = await runAll('node', tests, world, process.argv[2])
    await cluster.close()
  } catch (error) {
    outcome.failed = Math.max(1, outcome.failed)
    console.log(`FAIL node: ${error.stack ?? error}`)
  }
  try {
    await node.close()
  } catch (error) {
    outcome.failed += 1
    console.log(`FAIL node: at the end: ${error.message}`)
  }
  console.log(`${outcome.passed} passed, ${outcome.failed} failed`)
  process.exit(outcome.failed ? 1 : 0)
}

if (process.argv[2] === 'follow') await follow(couchbase, process.argv.slice(3))
else await main()
