// Questions to the server. They change nothing, and go where the page came from.

/** Refused is an answer that is none: the status, and what the server says. */
export class Refused extends Error {
  constructor(readonly status: number, message: string) { super(message) }
  /** denied: the caller lacks a right, or nobody knows who it is. */
  get denied() { return this.status === 401 || this.status === 403 }
}

let token = ''

/** useToken has all later questions show a token. It is kept nowhere but here. */
export function useToken(text: string) { token = text.trim() }

let ahead = 0
const tells = 2000 // ms: the server tells whole seconds, and an answer takes its time

/** clock is the server's time, as far as its answers tell: ages and deadlines are by its clock, and this machine's may be wrong. */
export const clock = () => Date.now() + ahead

function hear(date: string | null) {
  const there = Date.parse(date ?? '') + 500 - Date.now() // NaN where it does not say
  if (Math.abs(there - ahead) > tells) ahead = Math.abs(there) > tells ? there : 0
}

/** ask sends a question and returns the answer, which is a stream or JSON. */
export async function ask(path: string, query: Record<string, string> = {}, init: RequestInit = {}): Promise<Response> {
  const url = new URL('.' + path, document.baseURI)
  for (const [name, value] of Object.entries(query)) if (value) url.searchParams.set(name, value)
  const headers = new Headers(init.headers)
  if (token) headers.set('Authorization', 'Bearer ' + token)
  let answer: Response
  try {
    answer = await fetch(url, {...init, headers, cache: 'no-store', credentials: 'same-origin', redirect: 'error'})
  } catch (e) {
    throw init.signal?.aborted ? e : new Refused(0, 'the server does not answer')
  }
  hear(answer.headers.get('Date'))
  if (!answer.ok) throw new Refused(answer.status, await explain(answer))
  return answer
}

async function explain(answer: Response): Promise<string> {
  const text = await answer.text()
  try {
    return JSON.parse(text).Error ?? text
  } catch {
    return text || 'status ' + answer.status
  }
}

/** get asks for JSON. */
export async function get<A>(path: string, query: Record<string, string> = {}, signal?: AbortSignal): Promise<A> {
  return (await ask(path, query, {signal})).json()
}

/** pages asks for all pages of a list. They are large: for each of them the server goes through all it has. */
export async function pages<A extends {Continue?: string}>(path: string, query: Record<string, string>, signal?: AbortSignal): Promise<A[]> {
  const list: A[] = []
  for (let at = ''; ;) {
    const page = await get<A>(path, {...query, limit: '5000', continue: at}, signal)
    list.push(page)
    if (!page.Continue) return list
    at = page.Continue
  }
}
