import {render} from 'preact'
import {useSignal} from '@preact/signals'
import {account, connection, denied, path, revision, start, why} from './store'
import {ConflictsView} from './views/conflicts'
import {drawn, MapView} from './views/map'
import {NodeView} from './views/node'
import {ReservationsView} from './views/reservations'
import {WaitingView} from './views/waiting'
import './style.css'

const views: [string, string][] = [['map', 'Map'], ['waiting', 'Waiting'], ['reservations', 'Reservations'], ['conflicts', 'Conflicts']]

function Page() {
  const view = path.value[0]
  return <>
    <a class="skip" href="#main" onClick={e => { e.preventDefault(); document.getElementById('main')!.focus() }}>Skip to the view</a>
    <header>
      <strong>GlobalReserve</strong>
      <nav aria-label="Views">{views.map(([name, text]) => <a key={name} href={'#/' + name} aria-current={name === view ? 'page' : undefined}>{text}</a>)}</nav>
      {!denied.value && <Connection />}
    </header>
    <main id="main" tabIndex={-1}>{denied.value ? <Denied /> : !account.value ? <Loading /> : <View name={view} />}</main>
  </>
}

function View({name}: {name: string}) {
  if (name === 'node') return <NodeView name={path.value[1] ?? ''} />
  if (name === 'waiting') return <WaitingView />
  if (name === 'reservations') return <ReservationsView />
  if (name === 'conflicts') return <ConflictsView />
  return <><h1 class="hidden">Map of nodes</h1><MapView /></>
}

function Connection() {
  const said = {loading: 'loading', live: 'live', polling: 'every 3 s', lost: 'connection lost'}[connection.value]
  return <p class={'connection ' + connection.value} role="status" data-testid="connection" title={why.value}>{said}{account.value && <span class="note"> revision {revision}</span>}</p>
}

function Loading() {
  return <p role="status">{connection.value === 'lost' ? `The server does not answer (${why.value}). It is being tried again.` : 'Loading the account …'}</p>
}

/** Denied says which right is missing, and takes a token, which is kept in this page's memory only. */
function Denied() {
  const token = useSignal('')
  const unknown = denied.value!.status === 401
  return <section class="denied">
    <h1>{unknown ? 'Who are you?' : 'You lack a right'}</h1>
    <p role="alert">{denied.value!.message}</p>
    {!unknown && <p>The ClusterRole <code>globalreserve-viewer</code> shows everything, <code>globalreserve-tenant</code> amounts, and the names of the namespaces whose pods you may list. Somebody who may give rights gives you one so:</p>}
    {!unknown && <pre>kubectl create clusterrolebinding me-viewer --clusterrole globalreserve-viewer --user YOU</pre>}
    <form onSubmit={e => { e.preventDefault(); void start(token.value) }}>
      <label>Token of the cluster <input type="password" autocomplete="off" value={token.value} onInput={e => { token.value = e.currentTarget.value }} /></label>
      <button type="submit">Show it</button>
    </form>
    <p class="note">The token stays in the memory of this page. <code>kubectl create token NAME</code> prints one of a service account; <code>kubectl reserve ui</code> shows the page with your own rights.</p>
  </section>
}

render(<Page />, document.getElementById('page')!)
void start()
Object.assign(window, {globalreserve: {account, drawn}}) // for tests, and for whoever looks
