'use strict';
// node application.js QUEUE USER PASSWORD AUTHORITY ADDRESSES: with rhea, sends 1, 2, 3... to a queue, again what was
// lost, and receives them, over one connection each, until its input ends and all that was accepted is received. Tells on
// its output, one event a line. Without a USER it is anonymous, without an AUTHORITY it uses no TLS.

const fs = require('fs');
const rhea = require('rhea');

const WINDOW = 20;
const TICK = 5;
const [queue, username, password, authority] = process.argv.slice(2, 6);
const servers = process.argv[6].split(',').map(address => {
    const [host, port] = address.split(':');
    return {host: host, port: Number(port), ...encryption(host)};
});
const login = username ? {username: username, password: password} : {};

function say(event) {
    process.stdout.write(JSON.stringify(event) + '\n');
}

function encryption(host) {
    return authority ? {transport: 'tls', options: {servername: host, ca: fs.readFileSync(authority)}} : {transport: 'tcp'};
}

// A container whose connection goes on over the list of addresses.
function connect() {
    let next = 0;
    const container = rhea.create_container();
    container.on('connection_error', context => say({event: 'error', text: String(context.error)}));
    container.on('error', error => say({event: 'error', text: String(error)}));
    const connection = container.connect({
        connection_details: () => servers[next++ % servers.length],
        ...login, idle_time_out: 2000
    });
    return {container, connection};
}

const sends = connect();
const receives = connect();
const pending = new Map();
const accepted = new Set();
const received = new Set();
let again = [];
let last = 0;
let stopping = false;

const sender = sends.connection.open_sender({target: {address: queue}, autosettle: true});
receives.connection.open_receiver({source: {address: queue}, credit_window: 50});

function work() {
    if (stopping && pending.size === 0 && again.length === 0 && [...accepted].every(number => received.has(number))) {
        clearInterval(pace);
        sends.connection.close();
        receives.connection.close();
    } else if (sender.sendable() && pending.size < WINDOW && (again.length > 0 || !stopping)) {
        const number = again.length > 0 ? again.shift() : ++last;
        pending.set(sender.send({message_id: number, body: number}), number);
    }
}

sends.container.on('disconnected', () => {
    again = again.concat([...pending.values()]).sort((a, b) => a - b);
    pending.clear();
});
sends.container.on('accepted', context => {
    const number = pending.get(context.delivery);
    if (number === undefined) return;
    pending.delete(context.delivery);
    accepted.add(number);
    say({event: 'accepted', number: number});
});
sends.container.on('rejected', context => say({event: 'error', text: String(context.delivery.remote_state.error)}));
sends.container.on('released', () => say({event: 'error', text: 'released'}));
receives.container.on('message', context => {
    received.add(context.message.body);
    say({event: 'received', number: context.message.body});
});
process.stdin.on('end', () => { stopping = true; }).resume();
const pace = setInterval(work, TICK);
