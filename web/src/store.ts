// What all views share: the account, how it is followed, and what the visitor chose.
import {computed, signal} from '@preact/signals'
import type {Account} from './account'
import {clock, Refused, useToken} from './api'
import {meet} from './colours'
import {follow} from './follow'
import {poll} from './poll'

/** account is the one followed; null until the first is whole. */
export const account = signal<Account | null>(null)
/** revision changes with the account, some times a second at most: text follows it. The map follows the account itself. */
export const revision = signal(0)
/** connection says how the account is kept up to date. */
export const connection = signal<'loading' | 'live' | 'polling' | 'lost'>('loading')
/** why the connection is lost, or the account polled. */
export const why = signal('')
/** denied is the answer that says which right is missing to see anything. */
export const denied = signal<Refused | null>(null)
/** now is the server's time, second by second. */
export const now = signal(clock())
/** resource is what the map shows. */
export const resource = signal('cpu')
/** address is what follows # in the page's own: the view, and what it is about. */
export const address = signal(location.hash.slice(1) || '/map')
export const path = computed(() => address.value.split('/').slice(1).map(decodeURIComponent))

export const go = (...parts: string[]) => { location.hash = '/' + parts.map(encodeURIComponent).join('/') }

const textEvery = 250 // ms

let running = new AbortController()

/** start follows the account until it is called again. */
export async function start(token = '') {
  running.abort()
  const mine = running = new AbortController()
  if (token) useToken(token)
  denied.value = null
  connection.value = 'loading'
  let timer: ReturnType<typeof setTimeout> | undefined
  const changed = () => {
    connection.value = connection.value === 'polling' ? 'polling' : 'live'
    timer ??= setTimeout(() => { timer = undefined; revision.value = account.value?.revision ?? 0 }, textEvery)
  }
  const follower = {
    whole: (a: Account) => {
      meet(a.schedulers()) // before any view: each has the same colours, wherever a visit begins
      account.value = a
      revision.value = a.revision
    },
    changed,
    lost: (e: Refused) => { connection.value = 'lost'; why.value = e.message },
  }
  let end = await follow(follower, mine.signal)
  if (mine.signal.aborted) return
  why.value = end.message
  connection.value = 'polling'
  end = await poll({...follower, changed: () => { connection.value = 'polling'; changed() }}, mine.signal)
  if (!mine.signal.aborted) denied.value = end
}

addEventListener('hashchange', () => { address.value = location.hash.slice(1) || '/map' })
setInterval(() => { now.value = clock() }, 1000)
