'use strict';
// node receiver.js ADDRESSES QUEUE COUNT: receives until it has COUNT different numbers.

const rhea = require('rhea');
const {connect, say} = require('./servers.js');

const [addresses, queue, count] = [process.argv[2], process.argv[3], Number(process.argv[4])];
const received = new Set();

const {container, connection} = connect(rhea, addresses);
connection.open_receiver({source: {address: queue}, credit_window: 50});
container.on('message', context => {
    received.add(context.message.body);
    say({event: 'received', number: context.message.body});
    if (received.size === count) setTimeout(() => connection.close(), 50);
});
