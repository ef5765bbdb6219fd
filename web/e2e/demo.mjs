// Looks at the page of `make demo` as a visitor does: node e2e/demo.mjs URL, when both runs are over. It replays them, flips
// the switches until overcommit has risen and gone, and fails where the page does not show it or is hard to use for some.
import {createRequire} from 'node:module'
import {readFileSync} from 'node:fs'
import assert from 'node:assert/strict'
import {chromium} from 'playwright-core'

const soon = 20_000, rises = 120_000
const url = process.argv[2]
const browser = await chromium.launch({
  executablePath: process.env.BROWSER, chromiumSandbox: process.getuid() !== 0, args: ['--disable-dev-shm-usage'],
})
const context = await browser.newContext({viewport: {width: 1280, height: 720}})
const page = await context.newPage()
const errors = []
page.on('pageerror', e => errors.push(String(e)))
page.on('console', m => { if (m.type() === 'error') errors.push(m.text()) })

const text = selector => page.textContent(selector)
// waitFor waits until what an element says is as wanted.
const waitFor = async (selector, wanted, within) => {
  const began = performance.now()
  for (;;) {
    const said = await text(selector)
    if (wanted(said)) return said
    if (performance.now() - began > within) throw new Error(`${selector} still says ${JSON.stringify(said)}`)
    await new Promise(done => setTimeout(done, 50))
  }
}
const overcommitted = said => Number(/(\d+) nodes? overcommitted/.exec(said)?.[1] ?? NaN)
const bound = said => Number(/(\d+) pods? bound/.exec(said)?.[1] ?? NaN)

try {
  await page.goto(url)
  const recording = await (await context.request.get(url + 'recording.json')).json()
  // It replays both runs by itself, at a tenth of their speed.
  const end = Math.max(...recording.runs.flatMap(run => run.binds.map(bind => bind.ms)))
  await waitFor('#play', said => said === 'Pause', soon)
  const early = await waitFor('#said-0', said => bound(said) > 0, soon + 10 * end)
  assert.ok(bound(early) < recording.runs[0].result.bound, 'the replay begins with its end')
  // The scrubber goes to any moment: to the end, and by the keyboard back to the beginning.
  await page.focus('#scrubber')
  await page.keyboard.press('End')
  assert.equal(await text('#play'), 'Play', 'the replay runs on beside the scrubber')
  for (const [i, run] of recording.runs.entries()) {
    const said = await text(`#said-${i}`)
    assert.equal(bound(said), run.result.bound, said)
    assert.equal(overcommitted(said), run.result.overcommitted, said)
    const red = await page.locator(`#run-${i} line.red`).count()
    assert.equal(red, run.result.overcommitted, 'nodes with a red line')
  }
  await page.keyboard.press('Home')
  assert.equal(bound(await text('#said-0')), 0)
  // The play button takes it from there, ten times as slow as it was.
  const before = performance.now()
  await page.click('#play')
  await waitFor('#play', said => said === 'Play', soon + 20 * end)
  const took = performance.now() - before
  assert.ok(took > 9 * end, `${end} ms were replayed in ${took} ms`)

  // The switches.
  assert.ok(await page.isChecked('#behind'))
  await page.check('#churn')
  await page.uncheck('#behind')
  await waitFor('#said-now', said => overcommitted(said) > 2, rises)
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({colorScheme})
    if (process.env.PICTURES) await page.screenshot({path: `${process.env.PICTURES}/demo-page-${colorScheme}.png`, fullPage: true})
    const session = await context.newCDPSession(page)
    await session.send('Runtime.evaluate', {expression: readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')})
    const {violations} = await page.evaluate('axe.run()')
    assert.deepEqual(violations.map(v => `${v.id}: ${v.nodes.map(n => n.html + n.failureSummary).join(' | ')}`), [], colorScheme)
  }
  await page.check('#behind')
  await waitFor('#said-now', said => overcommitted(said) === 0, rises)
  assert.match(await page.getAttribute('#links a', 'href'), /^http:\/\/127\.0\.0\.1:\d+\/$/)
  assert.deepEqual(errors, [])
  await page.click('#links a') // the server's own page
  await page.locator('canvas').first().waitFor({timeout: soon})
} finally {
  await browser.close()
}
