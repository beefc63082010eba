'use strict';
// node selecting.js QUEUE FILTER ADDRESSES: with rhea, receives the messages of a queue that an SQL filter selects, until
// its input ends. Tells on its output, one event a line.

const rhea = require('rhea');

const [queue, filter, addresses] = process.argv.slice(2, 5);
const servers = addresses.split(',').map(address => {
    const [host, port] = address.split(':');
    return {host: host, port: Number(port), transport: 'tcp'};
});
const container = rhea.create_container();
let next = 0;

function say(event) {
    process.stdout.write(JSON.stringify(event) + '\n');
}

container.on('receiver_open', context => say({event: 'open', text: Object.keys(context.receiver.source.filter).join()}));
container.on('receiver_error', context => say({event: 'error', text: String(context.receiver.error)}));
container.on('connection_error', context => say({event: 'error', text: String(context.error)}));
container.on('error', error => say({event: 'error', text: String(error)}));
container.on('message', context => say({event: 'received', number: context.message.body}));
const connection = container.connect({connection_details: () => servers[next++ % servers.length], idle_time_out: 2000});
connection.open_receiver({
    source: {address: queue, filter: {'sql-filter': rhea.types.wrap_described(filter, 'amqp:sql-filter')}},
    credit_window: 5
});
process.stdin.on('end', () => connection.close()).resume();
