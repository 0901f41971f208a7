// What rhea sees of a broker: one JSON line for each case, as the programs beside this one write.
//
//     node client.js HOST PORT USER PASSWORD PLAIN-QUEUE
'use strict';

const rhea = require('rhea');
const assert = require('node:assert');

const [host, port, username, password, plain] = process.argv.slice(2);
const WAIT_MS = 15000;
const ABSENT_MS = 300;
let numbers = 0;

const name = () => `rhea_${process.hrtime.bigint()}_${++numbers}`;
const queue = (address, more = {}) => ({ address, capabilities: ['queue'], ...more });

function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`it has not happened: ${what}`)), WAIT_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

const once = (from, good, bad = []) => within(new Promise((resolve, reject) => {
  from.once(good, resolve);
  for (const event of bad) from.once(event, (context) => reject(context.error || context.link?.error || new Error(event)));
}), good);

class Client {
  constructor() {
    this.container = rhea.create_container();
    this.open = [];
  }

  async connect(options = {}) {
    const connection = this.container.connect({
      host, port: Number(port), username, password, reconnect: false, ...options,
    });
    connection.on('error', () => {}); // Each case listens to what it waits for.
    await once(connection, 'connection_open', ['connection_error', 'disconnected']);
    this.open.push(connection);
    return connection;
  }

  async sender(connection, target, more = {}) {
    const sender = connection.open_sender({ target, ...more });
    await once(sender, 'sendable', ['sender_error', 'sender_close']);
    return sender;
  }

  async close() {
    for (const connection of this.open) {
      if (connection.is_open()) {
        connection.close();
        await once(connection, 'connection_close').catch(() => {});
      }
    }
  }
}

// Waits for the outcome of a message.
async function sent(sender, message) {
  const delivery = sender.send(message);
  const listeners = [];
  const on = (event, listener) => {
    sender.on(event, listener);
    listeners.push([event, listener]);
  };
  const outcome = new Promise((resolve, reject) => {
    for (const event of ['accepted', 'rejected', 'released', 'modified']) {
      on(event, (context) => context.delivery === delivery && resolve(event));
    }
    on('sender_error', (context) => reject(context.sender.error));
  });
  try {
    return await within(outcome, 'an outcome');
  } finally {
    for (const [event, listener] of listeners) sender.removeListener(event, listener);
  }
}

class Taker {
  constructor(connection, source, more = {}) {
    this.waiting = [];
    this.found = [];
    this.receiver = connection.open_receiver({ source, credit_window: 0, autoaccept: false, ...more });
    this.receiver.on('message', (context) => {
      const one = { message: context.message, delivery: context.delivery };
      if (this.waiting.length) this.waiting.shift()(one);
      else this.found.push(one);
    });
  }

  static async opened(connection, source, more) {
    const made = new Taker(connection, source, more);
    await once(made.receiver, 'receiver_open', ['receiver_error']);
    return made;
  }

  next() {
    if (this.found.length) return Promise.resolve(this.found.shift());
    this.receiver.add_credit(1);
    return within(new Promise((resolve) => this.waiting.push(resolve)), 'a message');
  }

  async nothing() {
    this.receiver.add_credit(1);
    await new Promise((resolve) => setTimeout(resolve, ABSENT_MS));
    assert.strictEqual(this.found.length, 0, 'a message has come');
  }
}

const cases = {
  async connect(client) {
    const connection = await client.connect();
    assert.ok(connection.is_open());
  },

  async refused(client) {
    await assert.rejects(client.connect({ password: 'wrong' }));
  },

  async plain_address(client) {
    const connection = await client.connect();
    const sender = await client.sender(connection, plain);
    assert.strictEqual(await sent(sender, { body: 'by its name' }), 'accepted');
    const taker = await Taker.opened(connection, plain);
    const { message, delivery } = await taker.next();
    assert.strictEqual(message.body, 'by its name');
    delivery.accept();
  },

  async send_and_receive(client) {
    const connection = await client.connect();
    const to = name();
    const sender = await client.sender(connection, queue(to));
    for (let number = 0; number < 20; number++) {
      const outcome = await sent(sender, {
        body: `m${number}`, message_id: `id-${number}`, application_properties: { number },
      });
      assert.strictEqual(outcome, 'accepted');
    }
    const taker = await Taker.opened(connection, queue(to));
    for (let number = 0; number < 20; number++) {
      const { message, delivery } = await taker.next();
      assert.strictEqual(message.body, `m${number}`);
      assert.strictEqual(message.message_id, `id-${number}`);
      assert.strictEqual(message.application_properties.number, number);
      delivery.accept();
    }
    await taker.nothing();
  },

  async bodies(client) {
    const connection = await client.connect();
    const to = name();
    const sender = await client.sender(connection, queue(to));
    const taker = await Taker.opened(connection, queue(to));
    for (const body of ['text – Größe', { k: [1, null, true] }, ['a', 1.5], 7, true, 'x'.repeat(2000000)]) {
      await sent(sender, { body });
      const { message, delivery } = await taker.next();
      assert.deepStrictEqual(message.body, body);
      delivery.accept();
    }
    await sent(sender, { body: rhea.message.data_section(Buffer.from([0, 1, 255])) });
    const { message, delivery } = await taker.next();
    assert.deepStrictEqual([...message.body.content], [0, 1, 255]);
    delivery.accept();
  },

  async headers(client) {
    const connection = await client.connect();
    const to = name();
    const sender = await client.sender(connection, queue(to));
    await sent(sender, {
      body: 'h', subject: 's', correlation_id: 'c', reply_to: 'answers', content_type: 'text/x', group_id: 'g',
      durable: true, priority: 7, ttl: 60000, application_properties: { text: 't', flag: true },
      message_annotations: { 'x-opt-of-ours': 'kept' },
    });
    const { message, delivery } = await (await Taker.opened(connection, queue(to))).next();
    delivery.accept();
    assert.deepStrictEqual(
      [message.subject, message.correlation_id, message.reply_to, message.content_type, message.group_id],
      ['s', 'c', 'answers', 'text/x', 'g']);
    assert.deepStrictEqual([message.durable, message.priority], [true, 7]);
    assert.ok(message.ttl > 0 && message.ttl <= 60000, `ttl ${message.ttl}`);
    assert.deepStrictEqual({ ...message.application_properties }, { text: 't', flag: true });
    assert.strictEqual(message.message_annotations['x-opt-of-ours'], 'kept');
  },

  async accepted_is_gone(client) {
    const connection = await client.connect();
    const to = name();
    await sent(await client.sender(connection, queue(to)), { body: '1' });
    const { delivery } = await (await Taker.opened(connection, queue(to))).next();
    delivery.accept();
    connection.close();
    await once(connection, 'connection_close');
    await (await Taker.opened(await client.connect(), queue(to))).nothing();
  },

  async released_comes_again(client) {
    const connection = await client.connect();
    const to = name();
    await sent(await client.sender(connection, queue(to)), { body: '1' });
    const taker = await Taker.opened(connection, queue(to));
    (await taker.next()).delivery.release();
    const { message, delivery } = await taker.next();
    assert.deepStrictEqual([message.body, message.delivery_count || 0], ['1', 0]);
    delivery.accept();
    await taker.nothing();
  },

  async modified_is_counted(client) {
    const connection = await client.connect();
    const to = name();
    await sent(await client.sender(connection, queue(to)), { body: '1' });
    const taker = await Taker.opened(connection, queue(to));
    for (let count = 0; count < 3; count++) {
      const { message, delivery } = await taker.next();
      assert.strictEqual(message.delivery_count || 0, count);
      delivery.modified({ delivery_failed: true, undeliverable_here: false });
    }
    (await taker.next()).delivery.accept();
    await taker.nothing();
  },

  async rejected_is_gone(client) {
    const connection = await client.connect();
    const to = name();
    const sender = await client.sender(connection, queue(to));
    await sent(sender, { body: 'bad' });
    await sent(sender, { body: 'good' });
    const taker = await Taker.opened(connection, queue(to));
    (await taker.next()).delivery.reject({ condition: 'ours:bad', description: 'it is bad' });
    const { message, delivery } = await taker.next();
    assert.strictEqual(message.body, 'good');
    delivery.accept();
    await taker.nothing();
  },

  async filters(client) {
    const connection = await client.connect();
    const to = name();
    const sender = await client.sender(connection, queue(to));
    for (let n = 0; n < 6; n++) await sent(sender, { body: `m${n}`, application_properties: { n } });
    const filter = rhea.filter.selector('n >= 4');
    const taker = await Taker.opened(connection, queue(to, { filter }));
    assert.ok(taker.receiver.source.filter, 'the filter is not in the answer');
    for (const body of ['m4', 'm5']) {
      const { message, delivery } = await taker.next();
      assert.strictEqual(message.body, body);
      delivery.accept();
    }
    await taker.nothing();
  },

  async invalid_filter(client) {
    const connection = await client.connect();
    const filter = rhea.filter.selector('= n');
    const receiver = connection.open_receiver({ source: queue(name(), { filter }) });
    const context = await once(receiver, 'receiver_error');
    assert.strictEqual(context.receiver.error.condition, 'amqp:invalid-field');
    assert.ok(connection.is_open());
  },

  async request_and_reply(client) {
    const connection = await client.connect();
    const to = name();
    const replies = await Taker.opened(connection, { dynamic: true });
    const address = replies.receiver.source.address;
    await sent(await client.sender(connection, queue(to)), { body: 'q', reply_to: address, correlation_id: 'c1' });
    const server = await client.connect();
    const { message, delivery } = await (await Taker.opened(server, queue(to))).next();
    delivery.accept();
    await sent(await client.sender(server, message.reply_to), { body: 'a', correlation_id: message.correlation_id });
    const answer = await replies.next();
    assert.deepStrictEqual([answer.message.body, answer.message.correlation_id], ['a', 'c1']);
    answer.delivery.accept();
  },

  async presettled(client) {
    const connection = await client.connect();
    const to = name();
    const sender = await client.sender(connection, queue(to), { snd_settle_mode: 1 });
    for (let number = 0; number < 100; number++) sender.send({ body: number });
    const taker = await Taker.opened(connection, queue(to), { snd_settle_mode: 1 });
    for (let number = 0; number < 100; number++) {
      const { message, delivery } = await taker.next();
      assert.strictEqual(message.body, number);
      assert.ok(delivery.remote_settled, 'it is not settled');
    }
  },

  async drain(client) {
    const connection = await client.connect();
    const to = name();
    await sent(await client.sender(connection, queue(to)), { body: 'only one' });
    const taker = await Taker.opened(connection, queue(to));
    const drained = once(taker.receiver, 'receiver_drained');
    taker.receiver.drain = true;
    taker.receiver.add_credit(10);
    await drained;
    assert.strictEqual(taker.found.length, 1);
    taker.found[0].delivery.accept();
    assert.strictEqual(taker.receiver.credit, 0);
  },
};

async function main() {
  let good = true;
  for (const [title, body] of Object.entries(cases)) {
    const client = new Client();
    const began = Date.now();
    let why = null;
    try {
      await body(client);
    } catch (error) {
      why = `${error.name || error.constructor.name}: ${error.message || error.description || error}`;
      good = false;
    }
    await client.close();
    const result = { case: `rhea.${title}`, result: why ? 'failed' : 'passed', seconds: (Date.now() - began) / 1000, why };
    console.log(JSON.stringify(result));
  }
  process.exit(good ? 0 : 1);
}

main();
