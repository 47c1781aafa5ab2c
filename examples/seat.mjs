// Holds a seat while it runs, with node-postgres (npm install pg).
//
//     node seat.mjs CONNECTION LICENSE HOLDER SECONDS
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';

const [connectionString, licenseId, holder, seconds] = process.argv.slice(2);
const pool = new pg.Pool({ connectionString, max: 1 });
pool.on('error', () => {});     // an idle connection may break

const call = async (query, ...args) => (await pool.query(query, args)).rows[0];

// Errors that say no. All others are silence: the server restarts, is busy,
// has lost its key, is being upgraded. A seat outlives silence.
const isRefusal = (error) => /^(KR00[12346]|22|42)/.test(error.code ?? '');

// What a check-out or a heartbeat granted, by clocks on this side. The wall
// clock may be set back; the other one may stop in a laptop's sleep. So both.
class Lease {
  constructor(asked, row) {
    this.length = row.expires_at - row.issued_at;
    this.until = row.expires_at.getTime();
    this.untilMonotonic = asked + this.length;  // from before the request
  }
  over() {
    return Date.now() >= this.until || performance.now() >= this.untilMonotonic;
  }
}

async function checkOut() {
  // The same request_id again after a lost reply gives the same seat.
  const requestId = randomBytes(18).toString('base64url');
  for (let tries = 1; ; tries++) {
    const asked = performance.now();
    try {
      return [asked, await call(
        'SELECT * FROM keyright_checkout($1, $2, request_id => $3)',
        licenseId, holder, requestId)];
    } catch (error) {
      if (isRefusal(error) || tries === 4) throw error;
      await sleep(1000);
    }
  }
}

async function hold() {
  let [asked, seat] = await checkOut();
  if (seat.status === 'no_seats_available')
    throw new Error(`all ${seat.seat_count} seats are in use; ` +
                    `the next can be free at ${seat.retry_at?.toISOString()}`);
  console.log('slot', seat.slot, 'until', seat.expires_at);

  let lease = new Lease(asked, seat);
  let pause = lease.length / 3;
  const end = performance.now() + seconds * 1000;
  while (performance.now() < end) {
    await sleep(Math.min(pause, Math.max(0, end - performance.now())));
    asked = performance.now();
    let beat;
    try {
      beat = await call('SELECT * FROM keyright_heartbeat($1, $2)',
                        licenseId, seat.seat_id);
    } catch (error) {
      if (isRefusal(error) || lease.over()) throw error;
      pause = lease.length / 12;
      continue;
    }
    if (beat.status === 'seat_lost')
      throw new Error(`the seat is lost: ${beat.reason}`);
    lease = new Lease(asked, beat);
    pause = lease.length / 3;
    console.log('renewed until', beat.expires_at);
  }
  const row = await call('SELECT keyright_checkin($1, $2) AS status',
                         licenseId, seat.seat_id);
  console.log(row.status);
}

try {
  await hold();
} catch (error) {
  console.error(error.code ?? '', error.message);
  process.exitCode = 1;
} finally {
  await pool.end();
}
