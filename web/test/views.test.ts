import {expect, test} from 'vitest'
import type {Holder, Refusal} from '../src/types'
import {latest, losses, seconds, stacked, tally} from '../src/views/tally'
import {tileOf, tileOfDRA} from '../src/views/tiles'

const now = 1_000_000_000
const refusal = (ago: number, scheduler: string, ...holders: Holder[]) =>
  ({Number: ago, Time: new Date(now - ago * 1000).toISOString(), Scheduler: scheduler, Path: 'bind', Rejection: {Holders: holders}}) as Refusal

test('what nobody was refused for is no refusal', () => {
  const one = refusal(1, 'a')
  expect(tally([])).toBe('0 refusals')
  expect(tally([{...one, Warned: true}, one, {...one, Observed: true}, {...one, Warned: true}]))
    .toBe('1 refusal, 2 conflicts warned of only, 1 conflict observed only')
})

test('refusals are counted second by second, each scheduler on top of those after it', () => {
  const list = [refusal(0, 'a'), refusal(0, 'b'), refusal(0, 'b'), refusal(2, 'a'), refusal(seconds - 1, 'b'), refusal(seconds, 'b')]
  const [times, a, b] = stacked(list, ['a', 'b'], now)
  expect([times.length, times[0], times.at(-1)]).toEqual([seconds, now / 1000 - seconds + 1, now / 1000])
  expect([a.at(-1), a.at(-2), a.at(-3), a[0]]).toEqual([3, 0, 1, 1])
  expect([b.at(-1), b.at(-2), b.at(-3), b[0]]).toEqual([2, 0, 0, 1])
  expect(b.reduce((sum, n) => sum + n), 'what is too old is left out').toBe(3)
})

test('who loses to whom', () => {
  const pod = (scheduler: string) => ({Namespace: 'n', Pod: 'p', Scheduler: scheduler}) as Holder
  const slot = {Namespace: 'n', Reservation: 'n/r/s', Scheduler: 'a'} as Holder
  const list = [refusal(1, 'b', pod('a'), pod('b')), refusal(1, 'b', pod('a')), refusal(1, 'a', pod('b')), refusal(1, 'a', slot), refusal(1, 'a', {} as Holder), refusal(1, 'c')]
  expect(losses(list)).toEqual({columns: ['', 'a', 'b', 'reservations'], rows: [['a', [1, 0, 1, 1]], ['b', [0, 2, 0, 0]]], most: 2})
  expect(losses([refusal(1, 'c')]).rows).toEqual([])
})

test('the latest 500 are listed, the newest first', () => {
  const list = Array.from({length: 700}, (_, i) => refusal(700 - i, 'a'))
  expect([latest(list).length, latest(list)[0].Number, latest(list).at(-1)!.Number]).toEqual([500, 1, 500])
})

test('a device says who has it', () => {
  const device = {Name: 'node-gpu-0', ID: 'gpu-0', Resource: 'example.com/gpu'}
  const says = (d: object) => { const t = tileOf({...device, ...d}); return t.state + ': ' + t.says }
  expect(says({Free: true})).toBe('free: free')
  expect(says({Free: true, Reservation: 'n/r/s'}), 'kept for whom it is').toBe('free: reservation n/r/s')
  expect(says({Pods: [{Namespace: 'n', Pod: 'p'}, {Namespace: '', Pod: ''}], Reservation: 'n/r/s'})).toBe('had: pod n/p, of others')
  expect(says({Reservation: 'n/r/s'})).toBe('kept: reservation n/r/s')
  expect(says({Unschedulable: true})).toBe('closed: not given out')
  expect(says({}), 'its owner may not be seen').toBe('kept: of others')
})

test('a device of DRA says which claims have it, and whether that is too many', () => {
  const device = {Driver: 'gpu.example.com', Pool: 'n1', Name: 'gpu-0'}
  const of = (name: string, ...pods: string[]) => ({Namespace: 'n', Claim: name, State: 'Allocated' as const, ...(pods.length && {Pods: pods})})
  const says = (d: object) => { const t = tileOfDRA({...device, ...d}); return t.state + ': ' + t.says }
  expect(says({})).toBe('free: free')
  expect(says({Claims: [of('c', 'p', 'q')]})).toBe('had: claim n/c for pod p, q')
  expect(says({Claims: [of('c'), {State: 'Allocated'}]})).toBe('had: claims n/c, of others')
  expect(says({Claims: [of('c'), of('d')], Double: true})).toBe('twice: given twice: claims n/c, n/d')
})
