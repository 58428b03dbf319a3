// The Node SDK at a cluster that changes: writes and reads in rounds, until it is told to stop. It is told on its input
// what may go wrong: in the calm nothing but writes whose outcome is not known, in the storm what is tried again later.

import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'

// Documents in each bucket.
const KEYS = 25
const PAUSE_MS = 2
// How long an operation is tried, and how long what failed is tried again: longer than a failover.
const TIMEOUT_MS = 20_000
const PATIENCE_MS = 80_000

const say = (...words) => console.log(words.join(' ').replaceAll('\n', ' '))

class Follower {
  constructor(couchbase, name) {
    this.couchbase = couchbase
    this.name = name
    this.word = 'calm'
    createInterface({ input: process.stdin }).on('line', (line) => {
      this.word = line.trim()
      say('told', this.word)
    })
  }

  get storm() {
    return this.word === 'storm'
  }

  async attempt(what, operation) {
    const deadline = Date.now() + PATIENCE_MS
    for (;;) {
      try {
        return await operation()
      } catch (error) {
        if (error instanceof this.couchbase.DurabilityAmbiguousError) {
          say('ambiguous', what)
        } else if (!this.storm || Date.now() > deadline) {
          say('trouble', what, error.name, error.message)
          return undefined
        }
      }
      await pause(20)
    }
  }

  // Writes a document durably, reads it, and changes a part of it.
  async step(c, key, number) {
    const { DurabilityLevel, DurabilityImpossibleError, MutateInSpec, LookupInSpec } = this.couchbase
    const options = { timeout: TIMEOUT_MS }
    await this.attempt(`upsert ${key}`, async () => {
      try {
        await c.upsert(key, { round: number }, { ...options, durabilityLevel: DurabilityLevel.Majority })
      } catch (error) {
        if (!this.storm || !(error instanceof DurabilityImpossibleError)) throw error
        // One of two copies is gone.
        await c.upsert(key, { round: number }, options)
      }
    })
    await this.reads(c, key, number)
    await this.attempt(`mutate ${key}`, () => c.mutateIn(key, [MutateInSpec.upsert('part', number)], options))
    const found = await this.attempt(`look up ${key}`, () => c.lookupIn(key, [LookupInSpec.get('part')], options))
    const part = found?.content[0].value
    if (part !== number && !this.storm) say('trouble', key, 'has part', part, 'not', number)
  }

  // Expects what the last durable write left.
  async reads(c, key, number) {
    const found = await this.attempt(`get ${key}`, () => c.get(key, { timeout: TIMEOUT_MS }))
    const round = found?.content.round
    if (round !== number) say('trouble', key, 'is of round', round, 'not', number)
  }
}

export async function follow(couchbase, [seeds, name, ...buckets]) {
  const cluster = await couchbase.connect(`couchbase://${seeds}`, { username: 'Administrator', password: 'password' })
  const collections = buckets.map((bucket) => cluster.bucket(bucket).defaultCollection())
  const follower = new Follower(couchbase, name)
  const each = async (work) => {
    for (const c of collections) {
      for (let key = 0; key < KEYS; key += 1) await work(c, `${name}-${key}`)
    }
  }
  let number = 0
  while (follower.word !== 'stop') {
    number += 1
    await each((c, key) => follower.step(c, key, number).then(() => pause(PAUSE_MS)))
    say('round', number)
  }
  await each((c, key) => follower.reads(c, key, number))
  say('done', number)
  process.exit(0)
}
